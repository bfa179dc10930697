//! Walks the bytes beside the schema.

use super::node::{Bounds, Choice, Fields, Kinds, List, Node, NodeId, Number, Rest, Text};
use super::set::Set;
use super::{Schemas, describe};
use crate::error::Error;
use crate::message::{Reader, Value};

/// Values within values, and schemas within schemas of one value.
const DEPTH_MAX: u32 = 200;
/// Values that a check may look at, for each byte there is: choices look at the same ones again and again.
const LOOKS_PER_BYTE: usize = 16;
const LOOKS_MIN: usize = 4_096;

/// One step from a value to what is wrong in it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Element(usize),
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(Box<Wrong>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Wrong {
    /// From the innermost step outwards.
    steps: Vec<Step>,
    expected: String,
    value: String,
    nearest: Option<String>,
}

impl Mismatch {
    fn new(expected: impl Into<String>, value: impl Into<String>) -> Self {
        Self(Box::new(Wrong {
            steps: Vec::new(),
            expected: expected.into(),
            value: value.into(),
            nearest: None,
        }))
    }

    fn within(mut self, step: Step) -> Self {
        self.0.steps.push(step);
        self
    }

    /// Where it is below the value that was checked, as in `[2].name`; empty: the value itself.
    pub fn path(&self) -> String {
        let steps = self.0.steps.iter().rev();
        let steps = steps.map(|step| match step {
            Step::Field(name) => format!(".{name}"),
            Step::Element(number) => format!("[{number}]"),
        });
        steps.collect()
    }

    /// What would have been right, as in "an integer from 1".
    pub fn expected(&self) -> &str {
        &self.0.expected
    }

    /// The value, cut where it is long.
    pub fn value(&self) -> &str {
        &self.0.value
    }

    /// A field's name that may have been meant.
    pub fn nearest(&self) -> Option<&str> {
        self.0.nearest.as_deref()
    }
}

#[allow(clippy::needless_pass_by_value)] // the argument of `map_err`
fn unreadable(error: Error) -> Mismatch {
    Mismatch::new("msgpack", error.to_string())
}

type Checked = Result<(), Mismatch>;

/// A check under way.
struct Check<'s> {
    schemas: &'s Schemas,
    looks_left: usize,
}

impl Schemas {
    /// Check the next value; `reader` stands behind it afterwards. Obtains memory only where something is wrong.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn check(&self, id: NodeId, reader: &mut Reader<'_>) -> Checked {
        let looks_left = (reader.remaining() * LOOKS_PER_BYTE).max(LOOKS_MIN);
        let mut check = Check {
            schemas: self,
            looks_left,
        };
        check.value(id, reader, 0)
    }
}

impl Check<'_> {
    fn value(&mut self, id: NodeId, reader: &mut Reader<'_>, depth: u32) -> Checked {
        let node = self.schemas.node(id);
        self.looks_left = self.looks_left.checked_sub(1).ok_or_else(|| {
            Mismatch::new(
                "a value that can be told apart in reasonable time",
                "a deep one",
            )
        })?;
        if depth > DEPTH_MAX {
            return Err(Mismatch::new(
                format!("at most {DEPTH_MAX} levels"),
                "a deeper value",
            ));
        }
        let start = reader.clone();
        let value = reader.value().map_err(unreadable)?;
        if !node.reach.has(Kinds::of(&value)) {
            return Err(self.unexpected(id, &value));
        }
        self.content(id, node, &value, reader, depth)?;
        if node.is_plain() {
            return Ok(());
        }
        if let Some(values) = &node.values
            && !values.iter().any(|literal| literal.is(&value))
        {
            return Err(self.unexpected(id, &value));
        }
        for &other in &node.all {
            self.value(other, &mut start.clone(), depth + 1)?;
        }
        for choice in &node.choices {
            self.choose(id, choice, &start, &value, depth + 1)?;
        }
        Ok(())
    }

    fn unexpected(&self, id: NodeId, value: &Value<'_>) -> Mismatch {
        Mismatch::new(self.schemas.describe(id), describe::shown(value))
    }

    /// What is within a value of an allowed kind.
    fn content(
        &mut self,
        id: NodeId,
        node: &Node,
        value: &Value<'_>,
        reader: &mut Reader<'_>,
        depth: u32,
    ) -> Checked {
        let holds = match (value, &node.number, &node.text) {
            (Value::Int(_) | Value::Large(_) | Value::Float(_), Some(bounds), _) => {
                within(bounds, value)
            }
            (Value::Str(text), _, Some(rules)) => text_holds(rules, text),
            (Value::Bin(bytes), _, Some(rules)) => {
                length_holds(rules, bytes.len().div_ceil(3) as u64 * 4)
            }
            (Value::Array(count), ..) => match &node.list {
                Some(list) => return self.list(id, list, *count, reader, depth),
                None => return skip(*count, reader),
            },
            (Value::Map(count), ..) => match &node.map {
                Some(fields) => return self.map(id, fields, *count, reader, depth),
                None => return skip(2 * *count, reader),
            },
            _ => true,
        };
        if holds {
            Ok(())
        } else {
            Err(self.unexpected(id, value))
        }
    }

    fn list(
        &mut self,
        id: NodeId,
        list: &List,
        count: usize,
        reader: &mut Reader<'_>,
        depth: u32,
    ) -> Checked {
        let most = match list.rest {
            Rest::Nothing => Some(list.first.len() as u64),
            _ => None,
        };
        let fits = between(count, list.least, list.most) && between(count, None, most);
        if !fits {
            return Err(self.unexpected(id, &Value::Array(count)));
        }
        for number in 0..count {
            let own = list.first.get(number).copied();
            let Some(schema) = own.or(list.rest.each()) else {
                skip(1, reader)?;
                continue;
            };
            let checked = self.value(schema, reader, depth + 1);
            checked.map_err(|wrong| wrong.within(Step::Element(number)))?;
        }
        Ok(())
    }

    fn map(
        &mut self,
        id: NodeId,
        fields: &Fields,
        count: usize,
        reader: &mut Reader<'_>,
        depth: u32,
    ) -> Checked {
        if !between(count, fields.least, fields.most) {
            return Err(self.unexpected(id, &Value::Map(count)));
        }
        let mut seen = Set::default();
        for guess in 0..count {
            if let Some(names) = fields.names {
                self.value(names, &mut reader.clone(), depth + 1)?;
            }
            let key = reader.value().map_err(unreadable)?;
            let Value::Str(name) = key else {
                // A key that JSON writes as text: it may hold others itself.
                self.nameless(fields, &key, reader, depth)?;
                continue;
            };
            let schema = if let Some(number) = fields.find(name, guess) {
                seen.add(number);
                fields.named[number].schema
            } else {
                match fields.rest {
                    Rest::Each(schema) => schema,
                    Rest::Anything => {
                        skip(1, reader)?;
                        continue;
                    }
                    Rest::Nothing => return Err(unknown_field(fields, name)),
                }
            };
            let checked = self.value(schema, reader, depth + 1);
            checked.map_err(|wrong| wrong.within(Step::Field(name.into())))?;
        }
        match fields.required.first_beyond(&seen) {
            Some(missing) => {
                let name = fields.named[missing].name.to_string();
                Err(Mismatch::new("this field", "nothing").within(Step::Field(name)))
            }
            None => Ok(()),
        }
    }

    /// A pair whose key is no text, and was read.
    fn nameless(
        &mut self,
        fields: &Fields,
        key: &Value<'_>,
        reader: &mut Reader<'_>,
        depth: u32,
    ) -> Checked {
        match *key {
            Value::Array(count) => skip(count, reader)?,
            Value::Map(count) => skip(2 * count, reader)?,
            _ => {}
        }
        match fields.rest {
            Rest::Each(schema) => {
                let checked = self.value(schema, reader, depth + 1);
                checked.map_err(|wrong| wrong.within(Step::Field(describe::shown(key))))
            }
            Rest::Anything => skip(1, reader),
            Rest::Nothing => Err(Mismatch::new("fields with names", describe::shown(key))),
        }
    }

    /// One of the options must hold.
    fn choose(
        &mut self,
        id: NodeId,
        choice: &Choice,
        start: &Reader<'_>,
        value: &Value<'_>,
        depth: u32,
    ) -> Checked {
        if let (Some((tag, options)), Value::Map(count)) = (&choice.tag, value) {
            return match tagged(start, *count, tag)? {
                None => {
                    Err(Mismatch::new("this field", "nothing").within(Step::Field(tag.to_string())))
                }
                Some(found) => {
                    let text = tag_text(&found);
                    match options
                        .iter()
                        .find(|(value, _)| Some(&**value) == text.as_deref())
                    {
                        Some(&(_, option)) => self.value(option, &mut start.clone(), depth),
                        None => Err(wrong_tag(tag, options, &found)),
                    }
                }
            };
        }
        let kind = Kinds::of(value);
        let mut nearest = None;
        let mut candidates = 0;
        for &option in &choice.options {
            if !self.schemas.node(option).reach.has(kind) {
                continue;
            }
            candidates += 1;
            match self.value(option, &mut start.clone(), depth) {
                Ok(()) => return Ok(()),
                Err(wrong) => nearest = Some(wrong),
            }
        }
        match nearest {
            // Only one option is of this kind: what is wrong with it is what is wrong.
            Some(wrong) if candidates == 1 => Err(wrong),
            _ => Err(self.unexpected(id, value)),
        }
    }
}

fn within(bounds: &Bounds, value: &Value<'_>) -> bool {
    Number::of(value).is_some_and(|number| bounds.hold(number))
}

fn text_holds(rules: &Text, text: &str) -> bool {
    let counted = rules.least.is_none() && rules.most.is_none();
    let fits = counted || length_holds(rules, text.chars().count() as u64);
    fits && rules
        .pattern
        .as_ref()
        .is_none_or(|pattern| pattern.is_match(text))
}

fn length_holds(rules: &Text, length: u64) -> bool {
    rules.least.is_none_or(|least| length >= least) && rules.most.is_none_or(|most| length <= most)
}

fn between(count: usize, least: Option<u64>, most: Option<u64>) -> bool {
    let count = count as u64;
    least.is_none_or(|least| count >= least) && most.is_none_or(|most| count <= most)
}

fn skip(values: usize, reader: &mut Reader<'_>) -> Checked {
    for _ in 0..values {
        reader.skip().map_err(unreadable)?;
    }
    Ok(())
}

fn unknown_field(fields: &Fields, name: &str) -> Mismatch {
    let names = fields.named.iter().map(|field| &*field.name);
    let mut wrong = Mismatch::new("no such field", describe::shown(&Value::Str(name)));
    wrong.0.nearest = crate::nearest::nearest(name, names).map(Into::into);
    wrong
}

/// The value of the field that tells the options apart.
fn tagged<'a>(start: &Reader<'a>, count: usize, tag: &str) -> Result<Option<Value<'a>>, Mismatch> {
    let mut reader = start.clone();
    reader.value().map_err(unreadable)?;
    for _ in 0..count {
        let mut key = reader.clone();
        skip(1, &mut reader)?;
        if key.value().is_ok_and(|key| key == Value::Str(tag)) {
            return reader.value().map(Some).map_err(unreadable);
        }
        skip(1, &mut reader)?;
    }
    Ok(None)
}

/// A tag as the schema's mapping writes it.
fn tag_text(value: &Value<'_>) -> Option<String> {
    match value {
        Value::Str(text) => Some((*text).to_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

fn wrong_tag(tag: &str, options: &[(Box<str>, NodeId)], found: &Value<'_>) -> Mismatch {
    let names: Vec<String> = options
        .iter()
        .map(|(name, _)| format!("{name:?}"))
        .collect();
    let expected = format!("one of {}", names.join(", "));
    Mismatch::new(expected, describe::shown(found)).within(Step::Field(tag.into()))
}
