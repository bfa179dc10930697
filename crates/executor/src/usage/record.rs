//! Reads the record in which a worker reports figures: `[[name, [label, ...], number or numbers], ...]`, in msgpack.
//!
//! A name or a label that is not in the table is skipped, since the worker may be of a newer version. What is no figure
//! at all makes the whole record malformed, and nothing of it counts.

use crate::error::Result;
use crate::message::{Reader, Value};
use crate::usage::families::{CELLS, Family, family};

/// A number that belongs into a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub cell: usize,
    pub value: f64,
}

/// The figures of a record.
///
/// # Errors
/// `Malformed`.
pub fn read(record: &[u8]) -> Result<Vec<Figure>> {
    let mut reader = Reader::new(record);
    let count = reader.array()?;
    if count > CELLS {
        return Err(reader.malformed("more figures than there are"));
    }
    let mut figures = Vec::with_capacity(count);
    for _ in 0..count {
        if reader.array()? != 3 {
            return Err(reader.malformed("a figure is [name, labels, value]"));
        }
        let found = family(reader.text()?);
        let cell = read_labels(&mut reader, found)?;
        read_values(
            &mut reader,
            found.map(|(_, family)| family),
            cell,
            &mut figures,
        )?;
    }
    reader.end()?;
    Ok(figures)
}

/// The first cell of these labels; `None` if one of them is not in the table.
fn read_labels(
    reader: &mut Reader<'_>,
    found: Option<(usize, &'static Family)>,
) -> Result<Option<usize>> {
    let count = reader.array()?;
    let mut number = found
        .filter(|(_, family)| family.labels.len() == count)
        .map(|_| 0);
    for at in 0..count {
        let text = reader.text()?;
        let Some((_, values)) = found.and_then(|(_, family)| family.labels.get(at)) else {
            continue;
        };
        let value = values.iter().position(|known| *known == text);
        number = number
            .zip(value)
            .map(|(number, value)| number * values.len() + value);
    }
    let place = found.zip(number);
    Ok(place.map(|((first, family), number)| first + number * family.width()))
}

fn read_values(
    reader: &mut Reader<'_>,
    family: Option<&Family>,
    cell: Option<usize>,
    figures: &mut Vec<Figure>,
) -> Result<()> {
    let width = family.map(Family::width);
    let count = match reader.clone().value()? {
        Value::Array(count) => reader.array().map(|_| count)?,
        _ => 1,
    };
    if width.is_some_and(|width| width != count) || count > CELLS {
        return Err(reader.malformed("a figure with more or less numbers than it has"));
    }
    for at in 0..count {
        let value = read_number(reader)?;
        if let Some(first) = cell {
            figures.push(Figure {
                cell: first + at,
                value,
            });
        }
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // beyond 2^53 the last digits of a counter are lost, and nothing else
fn read_number(reader: &mut Reader<'_>) -> Result<f64> {
    let value = match reader.value()? {
        Value::Int(value) => value as f64,
        Value::Large(value) => value as f64,
        Value::Float(value) => value,
        _ => return Err(reader.malformed("a number was expected")),
    };
    if !value.is_finite() || value < 0.0 {
        return Err(reader.malformed("a figure is finite and not negative"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Writer;

    fn figure(writer: &mut Writer, name: &str, labels: &[&str]) {
        writer.array(3).text(name).array(labels.len());
        for label in labels {
            writer.text(label);
        }
    }

    fn record(name: &str, labels: &[&str], values: &dyn Fn(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.array(1);
        figure(&mut writer, name, labels);
        values(&mut writer);
        writer.into_bytes()
    }

    #[test]
    fn a_figure_finds_the_cell_of_its_labels() {
        let one = record("forebay_pool_services", &["worker", "leased"], &|writer| {
            writer.unsigned(3);
        });
        let figures = read(&one).expect("a record");
        assert_eq!(
            figures,
            [Figure {
                cell: 1,
                value: 3.0
            }]
        );
    }

    #[test]
    fn what_a_newer_worker_knows_is_skipped() {
        let number = |writer: &mut Writer| {
            writer.unsigned(3);
        };
        let numbers = |writer: &mut Writer| {
            writer.array(2).unsigned(3).float(0.5);
        };
        for (name, labels, values) in [
            ("forebay_new", &["a"][..], &number as &dyn Fn(&mut Writer)),
            ("forebay_new", &[], &numbers),
            ("forebay_tensor_slots", &["melted"], &number),
            ("forebay_tensor_slots", &["used", "more"], &number),
            ("forebay_tensor_slots", &[], &number),
        ] {
            let figures = read(&record(name, labels, values)).expect("a record");
            assert!(figures.is_empty(), "{name} {labels:?}");
        }
    }

    #[test]
    fn what_is_no_figure_makes_the_record_malformed() {
        let bad: [&dyn Fn(&mut Writer); 5] = [
            &|writer| {
                writer.text("3");
            },
            &|writer| {
                writer.integer(-1);
            },
            &|writer| {
                writer.float(f64::NAN);
            },
            &|writer| {
                writer.array(2).unsigned(1).unsigned(2);
            },
            &|writer| {
                writer.unsigned(1).unsigned(2);
            },
        ];
        for values in bad {
            assert!(read(&record("forebay_tensor_slots", &["used"], values)).is_err());
        }
        let mut many = Writer::default();
        many.array(CELLS + 1);
        let mut many = many.into_bytes();
        many.resize(many.len() + CELLS + 1, 0xc0);
        assert!(read(&many).is_err());
    }
}
