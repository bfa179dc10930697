//! Finds the name that was probably meant.

/// Of `names` the nearest to `name`, if it is near enough to be a misspelling.
///
/// Near means an edit distance of at most a third of the longer name; a missing ending, as in `timeout` for
/// `timeout_s`, is as near as that.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const CHARS_MAX: usize = 64;
    if name.chars().nth(CHARS_MAX).is_some() {
        return None;
    }
    names
        .into_iter()
        .filter(|known| known.chars().nth(CHARS_MAX).is_none())
        .map(|known| (distance(name, known), known))
        .filter(|&(distance, known)| {
            distance * 3 <= name.chars().count().max(known.chars().count())
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

/// The edit distance, with an exchange of neighbours as one edit. Source: the optimal string alignment distance.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    let mut previous = None;
    for (row, character) in one.chars().enumerate() {
        let mut line = Vec::with_capacity(last.len());
        line.push(row + 1);
        for (column, &wanted) in other.iter().enumerate() {
            let replaced = last[column] + usize::from(wanted != character);
            let mut best = replaced.min(last[column + 1] + 1).min(line[column] + 1);
            let exchanged =
                column > 0 && previous == Some(wanted) && other[column - 1] == character;
            if exchanged && let Some(&cost) = before.get(column - 1) {
                best = best.min(cost + 1);
            }
            line.push(best);
        }
        previous = Some(character);
        before = std::mem::replace(&mut last, line);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let names = ["index", "gamma", "learning_rate"];
        for (name, meant) in [
            ("idnex", Some("index")),
            ("indx", Some("index")),
            ("learningrate", Some("learning_rate")),
            ("alpha", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names), meant, "{name}");
        }
    }

    #[test]
    fn the_distance_counts_an_exchange_once() {
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("größe", "grösse"), 2);
    }
}
