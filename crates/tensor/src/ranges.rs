//! One tensor's rows over several shards: which of them has which, and where each answer lands.
use crate::error::Error;

/// Shards by the rows that they have: shard n has those from its start up to the next one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// The first row of each shard, then the number of rows.
    starts: Vec<u64>,
}

/// Consecutive rows that one shard is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The shard.
    pub shard: usize,
    /// The first row, as the shard counts them.
    pub first: u64,
    /// How many rows.
    pub count: u64,
    /// Where the first one lands in `out`, in rows.
    pub place: u64,
}

/// Row numbers, one list for each shard. Used again for the next pull, it allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Split {
    rows: Vec<u64>,
    places: Vec<u64>,
    /// Where each shard's lists begin, then where the last one ends.
    starts: Vec<usize>,
}

impl Split {
    /// What `shard` is asked for: its own row numbers, and for each its place in `out`, in rows.
    pub fn of(&self, shard: usize) -> (&[u64], &[u64]) {
        let range = self.starts[shard]..self.starts[shard + 1];
        (&self.rows[range.clone()], &self.places[range])
    }
}

impl Ranges {
    /// Shards with these numbers of rows, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where there is no shard, or more rows than 64 bits can count.
    pub fn new(rows: impl IntoIterator<Item = u64>) -> Result<Self, Error> {
        let mut starts = vec![0_u64];
        for rows in rows {
            let next = starts[starts.len() - 1].checked_add(rows);
            starts.push(next.ok_or(Error::Config {
                setting: "rows of a shard",
                value: rows,
                advice: "all of them together are to be below 2^64",
            })?);
        }
        if starts.len() == 1 {
            return Err(Error::Config {
                setting: "shards",
                value: 0,
                advice: "name one or more",
            });
        }
        Ok(Self { starts })
    }

    /// As even a split of `rows` as there is: the first shards have one more where it does not come out even.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where there is no shard.
    pub fn even(rows: u64, shards: usize) -> Result<Self, Error> {
        let count = shards.max(1) as u64;
        Self::new((0..shards as u64).map(|shard| rows / count + u64::from(shard < rows % count)))
    }

    /// How many shards.
    pub fn shards(&self) -> usize {
        self.starts.len() - 1
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.starts[self.shards()]
    }

    /// The first row of a shard.
    pub fn start(&self, shard: usize) -> u64 {
        self.starts[shard]
    }

    /// The shard that has `row`; past the end the last one.
    fn shard(&self, row: u64) -> usize {
        // Behind the last start that is no larger: shards without rows are passed over.
        self.starts[1..self.shards()].partition_point(|&start| start <= row)
    }

    /// The parts of `count` rows from `first`, in order.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`].
    pub fn slice(&self, first: u64, count: u64) -> Result<impl Iterator<Item = Part> + '_, Error> {
        let end = first.checked_add(count).filter(|&end| end <= self.rows());
        let end = end.ok_or_else(|| self.outside(first.max(self.rows())))?;
        let shards = if count == 0 { 0 } else { self.shards() };
        Ok((0..shards).filter_map(move |shard| {
            let from = first.max(self.starts[shard]);
            let until = end.min(self.starts[shard + 1]);
            (from < until).then(|| Part {
                shard,
                first: from - self.starts[shard],
                count: until - from,
                place: from - first,
            })
        }))
    }

    /// Split row numbers by shard into `split`; of one shard they stay in their order.
    ///
    /// Cost: two passes, each with a search among the shards for every row.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] with the first number that is outside.
    pub fn indices(&self, rows: &[u64], split: &mut Split) -> Result<(), Error> {
        let shards = self.shards();
        split.starts.clear();
        split.starts.resize(shards + 1, 0);
        for &row in rows {
            if row >= self.rows() {
                return Err(self.outside(row));
            }
            split.starts[self.shard(row) + 1] += 1;
        }
        for shard in 0..shards {
            split.starts[shard + 1] += split.starts[shard];
        }
        split.rows.resize(rows.len(), 0);
        split.places.resize(rows.len(), 0);
        // Each start runs up to the next one while its list is filled, and is set back after that.
        for (place, &row) in (0..).zip(rows) {
            let shard = self.shard(row);
            let at = split.starts[shard];
            split.starts[shard] += 1;
            split.rows[at] = row - self.starts[shard];
            split.places[at] = place;
        }
        split.starts.copy_within(..shards, 1);
        split.starts[0] = 0;
        Ok(())
    }

    fn outside(&self, row: u64) -> Error {
        Error::OutOfRange {
            tensor: None,
            row,
            rows: self.rows(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_even_split_differs_by_one_row_at_most() {
        let ranges = Ranges::even(10, 4).expect("there are shards");
        let starts: Vec<_> = (0..4).map(|shard| ranges.start(shard)).collect();
        assert_eq!((starts, ranges.rows()), (vec![0, 3, 6, 8], 10));
        assert!(Ranges::even(10, 0).is_err());
        assert!(Ranges::new([u64::MAX, 1]).is_err());
    }

    #[test]
    fn rows_outside_are_named() {
        let ranges = Ranges::even(10, 4).expect("there are shards");
        let outside = |row| Error::OutOfRange {
            tensor: None,
            row,
            rows: 10,
        };
        assert_eq!(ranges.slice(8, 3).err(), Some(outside(10)));
        assert_eq!(ranges.slice(11, 0).err(), Some(outside(11)));
        assert_eq!(ranges.slice(u64::MAX, 2).err(), Some(outside(u64::MAX)));
        let mut split = Split::default();
        assert_eq!(
            ranges.indices(&[3, u64::MAX, 10], &mut split),
            Err(outside(u64::MAX))
        );
    }

    /// The rows as if all shards were one array: each holds its number among all.
    fn shards() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(0..9_u64, 1..7)
    }

    proptest! {
        #[test]
        fn a_slice_over_shards_is_the_slice_of_all(rows in shards(), a in 0..60_u64, b in 0..60_u64) {
            let ranges = Ranges::new(rows).expect("there are shards");
            let (a, b) = (a.min(ranges.rows()), b.min(ranges.rows()));
            let (first, count) = (a.min(b), a.max(b) - a.min(b));
            let mut out = vec![u64::MAX; usize::try_from(count).expect("small")];
            for part in ranges.slice(first, count).expect("inside") {
                for row in 0..part.count {
                    let at = usize::try_from(part.place + row).expect("small");
                    out[at] = ranges.start(part.shard) + part.first + row;
                    prop_assert!(part.first + row < ranges.starts[part.shard + 1] - ranges.start(part.shard));
                }
            }
            prop_assert_eq!(out, (first..first + count).collect::<Vec<_>>());
        }

        #[test]
        fn every_index_goes_to_its_shard_and_lands_in_its_place(rows in shards(), wanted in proptest::collection::vec(any::<u64>(), 0..40)) {
            let ranges = Ranges::new(rows).expect("there are shards");
            let wanted: Vec<_> = wanted.into_iter().filter_map(|row| row.checked_rem(ranges.rows())).collect();
            let mut split = Split::default();
            ranges.indices(&[], &mut split).expect("nothing is inside");
            ranges.indices(&wanted, &mut split).expect("all are inside");
            let mut out = vec![u64::MAX; wanted.len()];
            for shard in 0..ranges.shards() {
                let (rows, places) = split.of(shard);
                prop_assert!(places.is_sorted());
                for (&row, &place) in rows.iter().zip(places) {
                    prop_assert!(row < ranges.starts[shard + 1] - ranges.start(shard));
                    out[usize::try_from(place).expect("small")] = ranges.start(shard) + row;
                }
            }
            prop_assert_eq!(out, wanted);
        }
    }
}
