//! Describes what a schema expects, or what a value is, in words.

use std::fmt::Write;

use super::Schemas;
use super::node::{Bounds, Fields, Kinds, List, Literal, Node, NodeId, Number, Text};
use crate::message::Value;

/// Schemas within schemas that a description follows.
const DEPTH_MAX: u32 = 4;
const VALUE_CHARS_MAX: usize = 60;

impl Schemas {
    /// What a schema expects, as in "an integer from 1 below 9".
    pub(super) fn describe(&self, id: NodeId) -> String {
        let mut parts = Vec::new();
        self.collect(id, 0, &mut parts);
        listed(parts)
    }

    /// The alternatives of a schema.
    fn collect(&self, id: NodeId, depth: u32, parts: &mut Vec<String>) {
        let node = self.node(id);
        if depth > DEPTH_MAX {
            parts.push("a value".into());
        } else if let Some(values) = &node.values {
            let values: Vec<String> = values.iter().map(literal).collect();
            parts.push(match &values[..] {
                [one] => one.clone(),
                more => format!("one of {}", more.join(", ")),
            });
        } else if let Some(choice) = node.choices.first() {
            for &option in &choice.options {
                self.collect(option, depth + 1, parts);
            }
        } else if let (Kinds::ALL, Some(&meant)) = (node.kinds, node.all.first()) {
            self.collect(meant, depth + 1, parts);
        } else {
            parts.extend(kinds_parts(node));
        }
    }
}

fn literal(value: &Literal) -> String {
    match value {
        Literal::Null => "null".into(),
        Literal::Boolean(value) => value.to_string(),
        Literal::Number(number) => number_text(*number),
        Literal::Text(text) => format!("{text:?}"),
    }
}

fn number_text(number: Number) -> String {
    match number {
        Number::Integer(value) => value.to_string(),
        Number::Float(value) => value.to_string(),
    }
}

/// "a", "a or b", "a, b or c"; each once.
fn listed(mut parts: Vec<String>) -> String {
    let mut seen = Vec::new();
    parts.retain(|part| {
        let is_new = !seen.contains(part);
        seen.push(part.clone());
        is_new
    });
    match parts.pop() {
        None => "nothing".into(),
        Some(last) if parts.is_empty() => last,
        Some(last) => format!("{} or {last}", parts.join(", ")),
    }
}

fn kinds_parts(node: &Node) -> Vec<String> {
    if node.kinds == Kinds::ALL {
        return vec!["a value".into()];
    }
    let number = node.number.as_deref();
    let text = node.text.as_deref();
    let is_number = node.kinds.has(Kinds::FLOAT);
    let is_text = node.kinds.has(Kinds::TEXT);
    let parts = [
        (Kinds::NULL, "null".into()),
        (Kinds::BOOLEAN, "true or false".into()),
        (Kinds::FLOAT, bounded("a number", number)),
        (
            Kinds::INTEGER,
            if is_number {
                String::new()
            } else {
                bounded("an integer", number)
            },
        ),
        (Kinds::TEXT, worded("text", text)),
        (
            Kinds::BYTES,
            if is_text {
                String::new()
            } else {
                "bytes".into()
            },
        ),
        (Kinds::LIST, sized(node.list.as_deref())),
        (
            Kinds::MAP,
            named(node.title.as_deref(), node.map.as_deref()),
        ),
        (Kinds::ARRAY, "a numpy array".into()),
        (
            Kinds::TIME,
            if is_text {
                String::new()
            } else {
                "a time".into()
            },
        ),
    ];
    let parts = parts
        .into_iter()
        .filter(|(kind, text)| node.kinds.has(*kind) && !text.is_empty());
    parts.map(|(_, text)| text).collect()
}

fn bounded(what: &str, bounds: Option<&Bounds>) -> String {
    let mut text = what.to_owned();
    let Some(bounds) = bounds else {
        return text;
    };
    let limits = [
        (" from ", bounds.least),
        (" above ", bounds.above),
        (" to ", bounds.most),
        (" below ", bounds.below),
    ];
    for (word, limit) in limits {
        if let Some(limit) = limit {
            let _ = write!(text, "{word}{}", number_text(limit));
        }
    }
    if let Some(of) = bounds.multiple_of {
        let _ = write!(text, " that {of} divides");
    }
    text
}

fn worded(what: &str, rules: Option<&Text>) -> String {
    let mut text = what.to_owned();
    if let Some(rules) = rules {
        text.push_str(&counted(rules.least, rules.most, "characters"));
        if let Some(pattern) = &rules.pattern {
            let _ = write!(text, " that matches {pattern}");
        }
    }
    text
}

fn sized(list: Option<&List>) -> String {
    let (least, most) = list.map_or((None, None), |list| (list.least, list.most));
    format!("a list{}", counted(least, most, "elements"))
}

fn named(title: Option<&str>, fields: Option<&Fields>) -> String {
    let (least, most) = fields.map_or((None, None), |fields| (fields.least, fields.most));
    match title {
        Some(title) => format!("a map ({title})"),
        None => format!("a map{}", counted(least, most, "fields")),
    }
}

fn counted(least: Option<u64>, most: Option<u64>, what: &str) -> String {
    match (least, most) {
        (Some(least), Some(most)) if least == most => format!(" of {least} {what}"),
        (Some(least), Some(most)) => format!(" of {least} to {most} {what}"),
        (Some(least), None) => format!(" of at least {least} {what}"),
        (None, Some(most)) => format!(" of at most {most} {what}"),
        (None, None) => String::new(),
    }
}

/// A value as a message shows it, cut where it is long.
pub(crate) fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Nil => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Large(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Str(text) if text.chars().nth(VALUE_CHARS_MAX).is_some() => {
            let cut: String = text.chars().take(VALUE_CHARS_MAX).collect();
            format!("{cut:?}... ({} bytes)", text.len())
        }
        Value::Str(text) => format!("{text:?}"),
        Value::Bin(bytes) => format!("{} bytes", bytes.len()),
        Value::Array(count) => format!("a list of {count}"),
        Value::Map(count) => format!("a map of {count}"),
        Value::Ext(1, _) => "a numpy array".into(),
        Value::Ext(-1, _) => "a time".into(),
        Value::Ext(kind, _) => format!("an extension of type {kind}"),
    }
}
