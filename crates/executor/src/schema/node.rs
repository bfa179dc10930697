//! The nodes of a compiled schema.

use regex_lite::Regex;

use super::set::Set;
use crate::message::Value;

/// A schema among the compiled ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(pub(super) u32);

/// Kinds of values, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(pub u16);

impl Kinds {
    pub const NULL: Self = Self(1);
    pub const BOOLEAN: Self = Self(1 << 1);
    pub const INTEGER: Self = Self(1 << 2);
    pub const FLOAT: Self = Self(1 << 3);
    pub const TEXT: Self = Self(1 << 4);
    pub const BYTES: Self = Self(1 << 5);
    pub const LIST: Self = Self(1 << 6);
    pub const MAP: Self = Self(1 << 7);
    /// A numpy array.
    pub const ARRAY: Self = Self(1 << 8);
    /// A time with its zone.
    pub const TIME: Self = Self(1 << 9);
    /// Any other extension.
    pub const OTHER: Self = Self(1 << 10);
    pub const ALL: Self = Self((1 << 11) - 1);
    pub const NONE: Self = Self(0);

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn of(value: &Value<'_>) -> Self {
        match value {
            Value::Nil => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Int(_) | Value::Large(_) => Self::INTEGER,
            Value::Float(_) => Self::FLOAT,
            Value::Str(_) => Self::TEXT,
            Value::Bin(_) => Self::BYTES,
            Value::Array(_) => Self::LIST,
            Value::Map(_) => Self::MAP,
            Value::Ext(1, _) => Self::ARRAY,
            Value::Ext(-1, _) => Self::TIME,
            Value::Ext(..) => Self::OTHER,
        }
    }
}

/// A schema: all that it says must hold.
#[derive(Debug)]
pub struct Node {
    pub kinds: Kinds,
    /// Of these, the kinds that the schemas it refers to accept.
    pub reach: Kinds,
    /// The application's name for it.
    pub title: Option<Box<str>>,
    pub number: Option<Box<Bounds>>,
    pub text: Option<Box<Text>>,
    pub list: Option<Box<List>>,
    pub map: Option<Box<Fields>>,
    /// The values that are allowed.
    pub values: Option<Box<[Literal]>>,
    /// Schemas that must hold as well, such as what a reference means.
    pub all: Vec<NodeId>,
    /// One of each must hold.
    pub choices: Vec<Choice>,
}

impl Default for Node {
    /// The schema that accepts everything.
    fn default() -> Self {
        Self {
            kinds: Kinds::ALL,
            reach: Kinds::ALL,
            title: None,
            number: None,
            text: None,
            list: None,
            map: None,
            values: None,
            all: Vec::new(),
            choices: Vec::new(),
        }
    }
}

impl Node {
    /// Whether the kind is all that it asks for.
    pub fn is_plain(&self) -> bool {
        self.values.is_none() && self.all.is_empty() && self.choices.is_empty()
    }
}

/// An exact number: a comparison of an integer with a float goes by the float's precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Integer(i128),
    Float(f64),
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => one.partial_cmp(other),
            _ => self.as_float().partial_cmp(&other.as_float()),
        }
    }
}

impl Number {
    #[allow(clippy::cast_precision_loss)] // said above
    fn as_float(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    pub fn of(value: &Value<'_>) -> Option<Self> {
        match *value {
            Value::Int(value) => Some(Self::Integer(i128::from(value))),
            Value::Large(value) => Some(Self::Integer(i128::from(value))),
            Value::Float(value) => Some(Self::Float(value)),
            _ => None,
        }
    }
}

/// What a number must be.
#[derive(Debug, Default)]
pub struct Bounds {
    pub least: Option<Number>,
    pub above: Option<Number>,
    pub most: Option<Number>,
    pub below: Option<Number>,
    /// Of integers alone.
    pub multiple_of: Option<i128>,
}

impl Bounds {
    pub fn hold(&self, number: Number) -> bool {
        // Written so that a float that is no number holds none of them.
        self.least.is_none_or(|least| number >= least)
            && self.above.is_none_or(|above| number > above)
            && self.most.is_none_or(|most| number <= most)
            && self.below.is_none_or(|below| number < below)
            && match (self.multiple_of, number) {
                (Some(of), Number::Integer(number)) => number % of == 0,
                _ => true,
            }
    }
}

/// What text must be, or bytes by their length in base64.
#[derive(Debug, Default)]
pub struct Text {
    pub least: Option<u64>,
    pub most: Option<u64>,
    pub pattern: Option<Regex>,
}

/// What follows the elements that are named one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    #[default]
    Anything,
    Nothing,
    Each(NodeId),
}

impl Rest {
    /// The schema of each of them, if they have one.
    pub fn each(self) -> Option<NodeId> {
        match self {
            Self::Each(schema) => Some(schema),
            Self::Anything | Self::Nothing => None,
        }
    }
}

#[derive(Debug, Default)]
pub struct List {
    /// The first elements, each by its own schema.
    pub first: Vec<NodeId>,
    pub rest: Rest,
    pub least: Option<u64>,
    pub most: Option<u64>,
}

/// The fields of a map.
#[derive(Debug, Default)]
pub struct Fields {
    pub named: Vec<Field>,
    /// Those that must be there, as a set of numbers of `named`.
    pub required: Set,
    pub rest: Rest,
    /// What names must be.
    pub names: Option<NodeId>,
    pub least: Option<u64>,
    pub most: Option<u64>,
}

#[derive(Debug)]
pub struct Field {
    pub name: Box<str>,
    pub schema: NodeId,
}

impl Fields {
    /// The number of a field; `guess` is where it stands if the writer kept our order.
    pub fn find(&self, name: &str, guess: usize) -> Option<usize> {
        find(&self.named, name, guess)
    }
}

/// The number of a field by its name, tried first where it stands if the writer kept our order.
pub fn find(fields: &[Field], name: &str, guess: usize) -> Option<usize> {
    if fields.get(guess).is_some_and(|field| *field.name == *name) {
        return Some(guess);
    }
    fields.iter().position(|field| *field.name == *name)
}

/// A value that a schema names.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    Null,
    Boolean(bool),
    Number(Number),
    Text(Box<str>),
}

impl Literal {
    pub fn kinds(&self) -> Kinds {
        match self {
            Self::Null => Kinds::NULL,
            Self::Boolean(_) => Kinds::BOOLEAN,
            Self::Number(Number::Integer(_)) => Kinds::INTEGER,
            Self::Number(Number::Float(_)) => Kinds::INTEGER.with(Kinds::FLOAT),
            Self::Text(_) => Kinds::TEXT,
        }
    }

    pub fn is(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Self::Null, Value::Nil) => true,
            (Self::Boolean(one), Value::Bool(other)) => one == other,
            (Self::Text(one), Value::Str(other)) => **one == **other,
            (Self::Number(Number::Integer(_)), Value::Float(_)) => false, // as the worker has it
            (Self::Number(one), value) => Number::of(value) == Some(*one),
            _ => false,
        }
    }
}

/// A field's name, and the option for each of its values as text.
pub type Tag = (Box<str>, Vec<(Box<str>, NodeId)>);

/// Schemas of which one must hold.
#[derive(Debug, Default)]
pub struct Choice {
    pub options: Vec<NodeId>,
    /// The field that tells which.
    pub tag: Option<Tag>,
}
