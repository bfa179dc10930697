//! Compiles JSON Schema, once per manifest.

use std::collections::HashMap;

use regex_lite::Regex;
use serde_json::{Map, Value};

use super::Schemas;
use super::node::{
    Bounds, Choice, Field, Fields, Kinds, List, Literal, Node, NodeId, Number, Rest, Tag, Text,
};
use super::set::Set;

const REFERENCE: &str = "#/definitions/";
/// References to references that are followed to learn a schema's kinds; beyond them it may accept more.
const REACH_ROUNDS: usize = 16;

/// The error says what is wrong with a schema, for a person.
type Answer<T> = Result<T, String>;

/// Compiles schemas that share definitions.
#[derive(Debug)]
pub struct Compiler<'a> {
    definitions: &'a Map<String, Value>,
    /// Definitions by name that have a node.
    begun: HashMap<&'a str, NodeId>,
    nodes: Vec<Node>,
}

impl<'a> Compiler<'a> {
    /// Of schemas that refer to `definitions` by `#/definitions/NAME`.
    pub fn new(definitions: &'a Map<String, Value>) -> Self {
        Self {
            definitions,
            begun: HashMap::new(),
            nodes: Vec::new(),
        }
    }

    /// Compile a schema.
    ///
    /// # Errors
    /// What is wrong with it: it is no schema, or refers to nothing.
    pub fn compile(&mut self, schema: &'a Value) -> Answer<NodeId> {
        let id = self.reserve()?;
        self.nodes[id.0 as usize] = self.node(schema)?;
        Ok(id)
    }

    /// All that was compiled.
    pub fn finish(mut self) -> Schemas {
        for _ in 0..REACH_ROUNDS {
            let narrowed: Vec<Kinds> = self.nodes.iter().map(|node| self.reach(node)).collect();
            let mut changed = false;
            for (node, reach) in self.nodes.iter_mut().zip(narrowed) {
                changed |= node.reach != reach;
                node.reach = reach;
            }
            if !changed {
                break;
            }
        }
        Schemas { nodes: self.nodes }
    }

    /// The kinds that a schema can accept, by what is known of those that it refers to.
    fn reach(&self, node: &Node) -> Kinds {
        let of = |id: &NodeId| self.nodes[id.0 as usize].reach;
        let any = |ids: &[NodeId]| ids.iter().fold(Kinds::NONE, |kinds, id| kinds.with(of(id)));
        let values = node.values.iter();
        let values = values.map(|values| {
            values
                .iter()
                .fold(Kinds::NONE, |kinds, value| kinds.with(value.kinds()))
        });
        let choices = node.choices.iter().map(|choice| any(&choice.options));
        let others = node.all.iter().map(of).chain(values).chain(choices);
        others.fold(node.kinds, Kinds::and)
    }

    fn reserve(&mut self) -> Answer<NodeId> {
        let id = u32::try_from(self.nodes.len()).map_err(|_| "more schemas than 32 bits count")?;
        self.nodes.push(Node::default());
        Ok(NodeId(id))
    }

    fn node(&mut self, schema: &'a Value) -> Answer<Node> {
        let schema = match schema {
            Value::Bool(true) => return Ok(Node::default()),
            Value::Bool(false) => {
                return Ok(Node {
                    kinds: Kinds::NONE,
                    ..Node::default()
                });
            }
            Value::Object(schema) => schema,
            other => return Err(format!("{other} is not a schema")),
        };
        let mut node = Node {
            kinds: kinds(schema)?,
            title: schema.get("title").and_then(Value::as_str).map(Into::into),
            number: bounds(schema)?,
            text: text(schema)?,
            list: self.list(schema)?,
            map: self.map(schema)?,
            values: values(schema)?,
            ..Node::default()
        };
        if let Some(reference) = schema.get("$ref") {
            node.all.push(self.definition(reference)?);
        }
        node.all.extend(self.each(schema.get("allOf"))?);
        for (name, tagged) in [("anyOf", true), ("oneOf", false)] {
            if let Some(options) = schema.get(name) {
                let options = self.each(Some(options))?;
                let tag = if tagged { self.tag(schema)? } else { None };
                node.choices.push(Choice { options, tag });
            }
        }
        Ok(node)
    }

    fn each(&mut self, schemas: Option<&'a Value>) -> Answer<Vec<NodeId>> {
        let Some(schemas) = schemas else {
            return Ok(Vec::new());
        };
        let schemas = schemas
            .as_array()
            .ok_or_else(|| format!("{schemas} is not a list of schemas"))?;
        schemas.iter().map(|schema| self.compile(schema)).collect()
    }

    /// What a reference means; one that refers to itself, by whatever way, is compiled once.
    fn definition(&mut self, reference: &'a Value) -> Answer<NodeId> {
        let name = reference
            .as_str()
            .and_then(|text| text.strip_prefix(REFERENCE));
        let found = name.and_then(|name| self.definitions.get_key_value(name));
        let Some((name, schema)) = found else {
            return Err(format!("$ref {reference} refers to nothing"));
        };
        if let Some(&id) = self.begun.get(name.as_str()) {
            return Ok(id);
        }
        let id = self.reserve()?;
        self.begun.insert(name, id);
        self.nodes[id.0 as usize] = self.node(schema)?;
        Ok(id)
    }

    fn tag(&mut self, schema: &'a Map<String, Value>) -> Answer<Option<Tag>> {
        let Some(tagged) = schema.get("discriminator") else {
            return Ok(None);
        };
        let name = tagged.get("propertyName").and_then(Value::as_str);
        let mapping = tagged.get("mapping").and_then(Value::as_object);
        let (Some(name), Some(mapping)) = (name, mapping) else {
            return Err(format!(
                "discriminator {tagged} names no field or no schemas"
            ));
        };
        let mut options = Vec::with_capacity(mapping.len());
        for (value, reference) in mapping {
            options.push((value.as_str().into(), self.definition(reference)?));
        }
        Ok(Some((name.into(), options)))
    }

    fn rest(&mut self, schema: Option<&'a Value>) -> Answer<Rest> {
        Ok(match schema {
            None | Some(Value::Bool(true)) => Rest::Anything,
            Some(Value::Bool(false)) => Rest::Nothing,
            Some(schema) => Rest::Each(self.compile(schema)?),
        })
    }

    fn list(&mut self, schema: &'a Map<String, Value>) -> Answer<Option<Box<List>>> {
        if !["prefixItems", "items", "minItems", "maxItems"]
            .iter()
            .any(|name| schema.contains_key(*name))
        {
            return Ok(None);
        }
        Ok(Some(Box::new(List {
            first: self.each(schema.get("prefixItems"))?,
            rest: self.rest(schema.get("items"))?,
            least: count(schema, "minItems")?,
            most: count(schema, "maxItems")?,
        })))
    }

    fn map(&mut self, schema: &'a Map<String, Value>) -> Answer<Option<Box<Fields>>> {
        let names = [
            "properties",
            "required",
            "additionalProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
        ];
        if !names.iter().any(|name| schema.contains_key(*name)) {
            return Ok(None);
        }
        let mut fields = Fields {
            rest: self.rest(schema.get("additionalProperties"))?,
            least: count(schema, "minProperties")?,
            most: count(schema, "maxProperties")?,
            ..Fields::default()
        };
        if let Some(names) = schema.get("propertyNames") {
            fields.names = Some(self.compile(names)?);
        }
        if let Some(properties) = schema.get("properties") {
            let properties = properties.as_object().ok_or("properties is not a map")?;
            for (name, schema) in properties {
                let schema = self.compile(schema)?;
                fields.named.push(Field {
                    name: name.as_str().into(),
                    schema,
                });
            }
        }
        self.require(schema, &mut fields)?;
        Ok(Some(Box::new(fields)))
    }

    /// Note which fields must be there; one that has no schema of its own gets that of the rest.
    fn require(&mut self, schema: &'a Map<String, Value>, fields: &mut Fields) -> Answer<()> {
        let Some(required) = schema.get("required") else {
            return within(fields.named.len());
        };
        for name in required.as_array().ok_or("required is not a list")? {
            let name = name
                .as_str()
                .ok_or_else(|| format!("required names {name}"))?;
            let found = fields.find(name, usize::MAX);
            let number = if let Some(number) = found {
                number
            } else {
                let schema = match fields.rest {
                    Rest::Each(schema) => schema,
                    Rest::Anything => self.compile(&Value::Bool(true))?,
                    Rest::Nothing => self.compile(&Value::Bool(false))?,
                };
                fields.named.push(Field {
                    name: name.into(),
                    schema,
                });
                fields.named.len() - 1
            };
            within(fields.named.len())?;
            fields.required.add(number);
        }
        within(fields.named.len())
    }
}

fn within(fields: usize) -> Answer<()> {
    if fields > Set::SIZE {
        return Err(format!("{fields} fields; fields_max is {}", Set::SIZE));
    }
    Ok(())
}

fn kinds(schema: &Map<String, Value>) -> Answer<Kinds> {
    if schema
        .get("x-forebay")
        .is_some_and(|marked| marked == "array")
    {
        return Ok(Kinds::ARRAY);
    }
    match schema.get("type") {
        None => Ok(Kinds::ALL),
        Some(Value::String(name)) => kind(name, schema),
        Some(Value::Array(names)) => {
            let mut kinds = Kinds::NONE;
            for name in names {
                kinds = kinds.with(kind(name.as_str().unwrap_or_default(), schema)?);
            }
            Ok(kinds)
        }
        Some(other) => Err(format!("type {other} is unknown")),
    }
}

fn kind(name: &str, schema: &Map<String, Value>) -> Answer<Kinds> {
    Ok(match name {
        "null" => Kinds::NULL,
        "boolean" => Kinds::BOOLEAN,
        "integer" => Kinds::INTEGER,
        "number" => Kinds::INTEGER.with(Kinds::FLOAT),
        "array" => Kinds::LIST,
        "object" => Kinds::MAP,
        "string" => text_kinds(schema),
        other => return Err(format!("type {other:?} is unknown")),
    })
}

/// What comes where JSON has text.
fn text_kinds(schema: &Map<String, Value>) -> Kinds {
    let is = |name: &str, value: &str| schema.get(name).is_some_and(|found| found == value);
    if is("contentEncoding", "base64") || is("x-forebay", "bytes") {
        return Kinds::BYTES;
    }
    let ruled = ["pattern", "minLength", "maxLength"]
        .iter()
        .any(|name| schema.contains_key(*name));
    match schema.get("format").and_then(Value::as_str) {
        // A datetime that may have a zone or not has no format, nor what only text can have.
        None if ruled => Kinds::TEXT,
        None | Some("date-time") => Kinds::TEXT.with(Kinds::TIME),
        Some("decimal") => Kinds::TEXT.with(Kinds::INTEGER).with(Kinds::FLOAT),
        Some("uuid") => Kinds::TEXT.with(Kinds::BYTES),
        Some(_) => Kinds::TEXT,
    }
}

fn number(value: &Value) -> Answer<Number> {
    if let Some(value) = value.as_i64() {
        return Ok(Number::Integer(i128::from(value)));
    }
    if let Some(value) = value.as_u64() {
        return Ok(Number::Integer(i128::from(value)));
    }
    value
        .as_f64()
        .map(Number::Float)
        .ok_or_else(|| format!("{value} is not a number"))
}

fn bounds(schema: &Map<String, Value>) -> Answer<Option<Box<Bounds>>> {
    let bound = |name: &str| schema.get(name).map(number).transpose();
    let bounds = Bounds {
        least: bound("minimum")?,
        above: bound("exclusiveMinimum")?,
        most: bound("maximum")?,
        below: bound("exclusiveMaximum")?,
        multiple_of: schema
            .get("multipleOf")
            .and_then(Value::as_i64)
            .filter(|&of| of > 0)
            .map(i128::from),
    };
    let limits = [bounds.least, bounds.above, bounds.most, bounds.below];
    let any = limits.iter().any(Option::is_some) || bounds.multiple_of.is_some();
    Ok(any.then(|| Box::new(bounds)))
}

fn text(schema: &Map<String, Value>) -> Answer<Option<Box<Text>>> {
    // A pattern beyond this engine, such as one that looks ahead, is left to the worker.
    let pattern = schema.get("pattern").and_then(Value::as_str);
    let text = Text {
        least: count(schema, "minLength")?,
        most: count(schema, "maxLength")?,
        pattern: pattern.and_then(|pattern| Regex::new(pattern).ok()),
    };
    let any = text.least.is_some() || text.most.is_some() || text.pattern.is_some();
    Ok(any.then(|| Box::new(text)))
}

fn values(schema: &Map<String, Value>) -> Answer<Option<Box<[Literal]>>> {
    if let Some(value) = schema.get("const") {
        return Ok(Some(Box::new([literal(value)?])));
    }
    let Some(values) = schema.get("enum") else {
        return Ok(None);
    };
    let values = values.as_array().ok_or("enum is not a list")?;
    let values: Answer<Box<[Literal]>> = values.iter().map(literal).collect();
    values.map(Some)
}

fn literal(value: &Value) -> Answer<Literal> {
    Ok(match value {
        Value::Null => Literal::Null,
        Value::Bool(value) => Literal::Boolean(*value),
        Value::Number(_) => Literal::Number(number(value)?),
        Value::String(text) => Literal::Text(text.as_str().into()),
        other => return Err(format!("an enum may not name {other}")),
    })
}

fn count(schema: &Map<String, Value>, name: &str) -> Answer<Option<u64>> {
    schema
        .get(name)
        .map(|value| {
            value
                .as_u64()
                .ok_or_else(|| format!("{name} {value} is not a count"))
        })
        .transpose()
}
