//! Schemas one by one, as msgspec writes them.

use super::*;
use crate::message::{Reader, Writer};
use serde_json::{Value as Json, json};

/// Check against a schema; the place, what was expected and the value where it does not fit.
fn check(
    schema: &Json,
    definitions: &Json,
    fill: impl FnOnce(&mut Writer) -> &mut Writer,
) -> Result<(), String> {
    let mut compiler = Compiler::new(definitions.as_object().expect("a map"));
    let id = compiler.compile(schema).expect("a schema");
    let mut writer = Writer::default();
    fill(&mut writer);
    let bytes = writer.into_bytes();
    let mut reader = Reader::new(&bytes);
    let checked = compiler.finish().check(id, &mut reader);
    if checked.is_ok() {
        reader.end().expect("all was read");
    }
    checked.map_err(|wrong| {
        format!(
            "{}: {}, got {}",
            wrong.path(),
            wrong.expected(),
            wrong.value()
        )
    })
}

fn plain(schema: &Json, fill: impl FnOnce(&mut Writer) -> &mut Writer) -> Result<(), String> {
    check(schema, &json!({}), fill)
}

#[test]
fn every_kind_is_itself_alone() {
    type Fill = fn(&mut Writer) -> &mut Writer;
    let values: [(&str, Fill); 10] = [
        ("null", |w| w.nil()),
        ("boolean", |w| w.boolean(true)),
        ("integer", |w| w.integer(-5)),
        ("number", |w| w.float(0.5)),
        ("string", |w| w.text("a")),
        ("array", |w| w.array(0)),
        ("object", |w| w.map(0)),
        ("bytes", |w| w.binary(b"a")),
        ("numpy", |w| w.ext(1, b"a")),
        ("other", |w| w.ext(7, b"a")),
    ];
    let schemas = [
        ("null", json!({"type": "null"})),
        ("boolean", json!({"type": "boolean"})),
        ("integer", json!({"type": "integer"})),
        ("number", json!({"type": "number"})),
        ("string", json!({"type": "string"})),
        ("array", json!({"type": "array"})),
        ("object", json!({"type": "object"})),
        (
            "bytes",
            json!({"type": "string", "contentEncoding": "base64"}),
        ),
        ("numpy", json!({"x-forebay": "array"})),
    ];
    for (wanted, schema) in &schemas {
        for (kind, fill) in values {
            let fits = kind == *wanted || (kind == "integer" && *wanted == "number");
            assert_eq!(plain(schema, fill).is_ok(), fits, "{kind} as {wanted}");
        }
    }
    assert!(
        values
            .iter()
            .all(|(_, fill)| plain(&json!({}), fill).is_ok())
    );
    assert!(
        values
            .iter()
            .all(|(_, fill)| plain(&json!(false), fill).is_err())
    );
}

#[test]
fn forms_that_json_writes_as_text_come_as_themselves() {
    for (format, fits) in [
        (json!("date-time"), true),
        (json!(null), true),
        (json!("date"), false),
    ] {
        let schema = if format.is_null() {
            json!({"type": "string"})
        } else {
            json!({"type": "string", "format": format})
        };
        assert_eq!(
            plain(&schema, |w| w.ext(-1, &[0; 8])).is_ok(),
            fits,
            "{schema}"
        );
    }
    let uuid = json!({"type": "string", "format": "uuid"});
    assert!(plain(&uuid, |w| w.binary(&[0; 16])).is_ok());
    let decimal = json!({"type": "string", "format": "decimal"});
    assert!(plain(&decimal, |w| w.unsigned(5)).is_ok());
    let short =
        json!({"type": "string", "contentEncoding": "base64", "minLength": 4, "maxLength": 4});
    assert!(plain(&short, |w| w.binary(b"abc")).is_ok());
    assert!(plain(&short, |w| w.binary(b"abcd")).is_err());
}

#[test]
fn bounds_are_exact_at_their_edges() {
    let schema = json!({"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2});
    for (value, fits) in [
        (0, false),
        (2, true),
        (3, false),
        (8, true),
        (10, false),
        (9, false),
    ] {
        assert_eq!(
            plain(&schema, |w| w.integer(value)).is_ok(),
            fits,
            "{value}"
        );
    }
    let large = json!({"type": "integer", "minimum": u64::MAX});
    assert!(plain(&large, |w| w.unsigned(u64::MAX)).is_ok());
    assert!(plain(&large, |w| w.unsigned(u64::MAX - 1)).is_err());
    let number = json!({"type": "number", "exclusiveMinimum": 0});
    assert!(plain(&number, |w| w.float(f64::MIN_POSITIVE)).is_ok());
    assert!(plain(&number, |w| w.float(0.0)).is_err());
    assert!(plain(&number, |w| w.float(f64::NAN)).is_err());
    let told = plain(&schema, |w| w.unsigned(9)).expect_err("too large");
    assert_eq!(told, ": an integer from 1 below 9 that 2 divides, got 9");
}

#[test]
fn text_is_counted_in_characters() {
    let schema = json!({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^ä"});
    for (text, fits) in [
        ("ä", false),
        ("äb", true),
        ("äbc", true),
        ("äbcd", false),
        ("bä", false),
    ] {
        assert_eq!(plain(&schema, |w| w.text(text)).is_ok(), fits, "{text}");
    }
    let ahead = json!({"type": "string", "pattern": "^(?!a)"});
    assert!(plain(&ahead, |w| w.text("a")).is_ok(), "left to the worker");
}

#[test]
fn lists_have_first_elements_and_a_rest() {
    let pair = json!({"type": "array", "minItems": 2, "maxItems": 2,
        "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false});
    assert!(plain(&pair, |w| w.array(2).unsigned(1).text("a")).is_ok());
    assert!(plain(&pair, |w| w.array(1).unsigned(1)).is_err());
    assert!(plain(&pair, |w| w.array(3).unsigned(1).text("a").nil()).is_err());
    let told = plain(&pair, |w| w.array(2).unsigned(1).unsigned(1)).expect_err("no text");
    assert_eq!(told, "[1]: text, got 1");
    let open = json!({"type": "array", "prefixItems": [{"enum": ["T"]}]});
    assert!(plain(&open, |w| w.array(2).text("T").map(1).nil().nil()).is_ok());
}

#[test]
fn maps_with_other_keys_than_text_are_checked_by_their_values() {
    let counts = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    assert!(
        plain(&counts, |w| w
            .map(2)
            .unsigned(5)
            .unsigned(1)
            .text("a")
            .unsigned(1))
        .is_ok()
    );
    assert!(plain(&counts, |w| w.map(1).array(1).nil().unsigned(1)).is_ok());
    let told = plain(&counts, |w| w.map(1).unsigned(5).nil()).expect_err("no integer");
    assert_eq!(told, ".5: an integer, got null");
    let named = json!({"type": "object", "propertyNames": {"pattern": "^a"}});
    assert!(plain(&named, |w| w.map(1).text("ab").nil()).is_ok());
    assert!(plain(&named, |w| w.map(1).text("b").nil()).is_err());
    let sized = json!({"type": "object", "minProperties": 1, "maxProperties": 1});
    assert!(plain(&sized, |w| w.map(0)).is_err());
}

/// Two structs that a tag tells apart, one of which holds others.
fn shapes() -> Json {
    json!({
        "Dot": {"title": "Dot", "type": "object", "required": ["type", "x"],
            "properties": {"type": {"enum": ["Dot"]}, "x": {"type": "integer"}}},
        "Group": {"title": "Group", "type": "object", "required": ["type", "of"],
            "properties": {"type": {"enum": ["Group"]}, "of": {"type": "array", "items": {"$ref": "#/definitions/Any"}}}},
        "Any": {"anyOf": [{"$ref": "#/definitions/Dot"}, {"$ref": "#/definitions/Group"}],
            "discriminator": {"propertyName": "type", "mapping": {"Dot": "#/definitions/Dot", "Group": "#/definitions/Group"}}},
    })
}

#[test]
fn a_tag_leads_to_what_is_wrong() {
    let any = json!({"anyOf": [{"$ref": "#/definitions/Any"}, {"type": "null"}]});
    let dot = |w: &mut Writer, tag: &str| {
        w.map(2).text("x").unsigned(1).text("type").text(tag);
    };
    let told = |tag: &str| {
        check(&any, &shapes(), |w| {
            w.map(2).text("type").text("Group").text("of").array(1);
            dot(w, tag);
            w
        })
    };
    assert_eq!(told("Dot"), Ok(()));
    assert_eq!(
        told("Dod").expect_err("no such tag"),
        ".of[0].type: one of \"Dot\", \"Group\", got \"Dod\""
    );
    assert_eq!(check(&any, &shapes(), |w| w.nil()), Ok(()));
    let untagged = check(&any, &shapes(), |w| w.map(0)).expect_err("no tag");
    assert_eq!(untagged, ".type: this field, got nothing");
    let told = check(&any, &shapes(), |w| w.unsigned(1)).expect_err("neither");
    assert_eq!(told, ": a map (Dot), a map (Group) or null, got 1");
}

#[test]
fn a_schema_that_means_itself_and_a_value_without_end_are_errors() {
    let circle =
        json!({"A": {"$ref": "#/definitions/B"}, "B": {"anyOf": [{"$ref": "#/definitions/A"}]}});
    assert!(check(&json!({"$ref": "#/definitions/A"}), &circle, |w| w.nil()).is_err());
    let nest = json!({"N": {"type": "array", "items": {"$ref": "#/definitions/N"}}});
    let deep = |levels: usize| {
        check(&json!({"$ref": "#/definitions/N"}), &nest, |w| {
            (0..levels).fold(w, |w, _| w.array(1)).array(0)
        })
    };
    assert_eq!(deep(50), Ok(()));
    assert!(deep(100_000).is_err());
}

#[test]
fn choices_within_choices_cannot_take_for_ever() {
    // Both options look at everything below before they fail: 2 to the 40th looks, were they not counted.
    let twice = json!({"T": {"anyOf": [
        {"type": "array", "prefixItems": [{"$ref": "#/definitions/T"}, {"const": 1}]},
        {"type": "array", "prefixItems": [{"$ref": "#/definitions/T"}, {"const": 2}]}, {"type": "null"}]}});
    let told = check(&json!({"$ref": "#/definitions/T"}), &twice, |w| {
        let w = (0..40).fold(w, |w, _| w.array(2)).nil();
        (0..40).fold(w, |w, _| w.unsigned(3))
    });
    assert!(told.is_err());
}
