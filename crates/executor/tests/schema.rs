//! The compiled check against a slow and straightforward one, on made-up schemas and values.
//!
//! `cargo test --release -p forebay-executor --test schema -- --ignored --nocapture` prints what a check costs.

use forebay_executor::manifest::Manifest;
use forebay_executor::message::{Reader, Writer};
use forebay_executor::schema::Compiler;
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

/// A value as it travels; maps have text as keys.
#[derive(Clone, Debug)]
enum Tree {
    Plain(Json),
    Bytes(usize),
    Array,
    Time,
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

fn write(tree: &Tree, writer: &mut Writer) {
    match tree {
        Tree::Plain(Json::Null) => drop_it(writer.nil()),
        Tree::Plain(Json::Bool(value)) => drop_it(writer.boolean(*value)),
        Tree::Plain(Json::String(text)) => drop_it(writer.text(text)),
        Tree::Plain(number) => match number.as_i64() {
            Some(value) => drop_it(writer.integer(value)),
            None => drop_it(writer.float(number.as_f64().expect("a number"))),
        },
        Tree::Bytes(length) => drop_it(writer.binary(&vec![7; *length])),
        Tree::Array => drop_it(writer.ext(1, b"x")),
        Tree::Time => drop_it(writer.ext(-1, &[0; 8])),
        Tree::List(values) => {
            writer.array(values.len());
            for value in values {
                write(value, writer);
            }
        }
        Tree::Map(pairs) => {
            writer.map(pairs.len());
            for (key, value) in pairs {
                writer.text(key);
                write(value, writer);
            }
        }
    }
}

fn drop_it(_: &mut Writer) {}

/// Whether a value fits, keyword by keyword as the specification reads.
fn fits(schema: &Json, definitions: &Map<String, Json>, value: &Tree, depth: usize) -> bool {
    let Json::Object(schema) = schema else {
        return schema == &Json::Bool(true);
    };
    let within =
        |schema: &Json, value: &Tree| depth < 60 && fits(schema, definitions, value, depth + 1);
    let all = |name: &str, holds: &dyn Fn(&Json) -> bool| schema.get(name).is_none_or(holds);
    let length = match value {
        Tree::Plain(Json::String(text)) => Some(text.chars().count() as u64),
        Tree::Bytes(length) => Some(length.div_ceil(3) as u64 * 4),
        _ => None,
    };
    let number = match value {
        Tree::Plain(Json::Number(number)) => number.as_f64(),
        _ => None,
    };
    let plain = |found: &Json| match value {
        Tree::Plain(value) => value == found,
        _ => false,
    };
    let compared = |holds: fn(f64, f64) -> bool| {
        move |limit: &Json| number.is_none_or(|n| holds(n, limit.as_f64().expect("a number")))
    };
    is_of_type(schema, value)
        && all("enum", &|values| {
            values.as_array().expect("a list").iter().any(plain)
        })
        && all("const", &plain)
        && all("minimum", &compared(|n, limit| n >= limit))
        && all("exclusiveMinimum", &compared(|n, limit| n > limit))
        && all("maximum", &compared(|n, limit| n <= limit))
        && all("exclusiveMaximum", &compared(|n, limit| n < limit))
        && all("minLength", &|least| {
            length.is_none_or(|length| length >= least.as_u64().expect("a count"))
        })
        && all("maxLength", &|most| {
            length.is_none_or(|length| length <= most.as_u64().expect("a count"))
        })
        && all("$ref", &|reference| {
            let name = reference
                .as_str()
                .expect("text")
                .trim_start_matches("#/definitions/");
            within(&definitions[name], value)
        })
        && all("anyOf", &|options| {
            options
                .as_array()
                .expect("a list")
                .iter()
                .any(|option| within(option, value))
        })
        && match value {
            Tree::List(values) => list_fits(schema, values, &within),
            Tree::Map(pairs) => map_fits(schema, pairs, &within),
            _ => true,
        }
}

fn is_of_type(schema: &Map<String, Json>, value: &Tree) -> bool {
    if schema
        .get("x-forebay")
        .is_some_and(|marked| marked == "array")
    {
        return matches!(value, Tree::Array);
    }
    let Some(name) = schema.get("type") else {
        return true;
    };
    match (name.as_str().expect("text"), value) {
        ("string", Tree::Bytes(_)) => schema.contains_key("contentEncoding"),
        ("string", Tree::Plain(Json::String(_))) => !schema.contains_key("contentEncoding"),
        ("string", Tree::Time) => !["contentEncoding", "minLength"]
            .iter()
            .any(|name| schema.contains_key(*name)),
        ("null", Tree::Plain(Json::Null))
        | ("boolean", Tree::Plain(Json::Bool(_)))
        | ("number", Tree::Plain(Json::Number(_)))
        | ("array", Tree::List(_))
        | ("object", Tree::Map(_)) => true,
        ("integer", Tree::Plain(Json::Number(number))) => number.is_i64(),
        _ => false,
    }
}

fn list_fits(
    schema: &Map<String, Json>,
    values: &[Tree],
    within: &dyn Fn(&Json, &Tree) -> bool,
) -> bool {
    let first = schema
        .get("prefixItems")
        .and_then(Json::as_array)
        .cloned()
        .unwrap_or_default();
    let any = Json::Bool(true);
    let rest = schema.get("items").unwrap_or(&any);
    let count = |name: &str| schema.get(name).and_then(Json::as_u64);
    count("minItems").is_none_or(|least| values.len() as u64 >= least)
        && count("maxItems").is_none_or(|most| values.len() as u64 <= most)
        && values
            .iter()
            .enumerate()
            .all(|(number, value)| within(first.get(number).unwrap_or(rest), value))
}

fn map_fits(
    schema: &Map<String, Json>,
    pairs: &[(String, Tree)],
    within: &dyn Fn(&Json, &Tree) -> bool,
) -> bool {
    let none = Map::new();
    let named = schema
        .get("properties")
        .and_then(Json::as_object)
        .unwrap_or(&none);
    let any = Json::Bool(true);
    let rest = schema.get("additionalProperties").unwrap_or(&any);
    let required = schema
        .get("required")
        .and_then(Json::as_array)
        .cloned()
        .unwrap_or_default();
    pairs
        .iter()
        .all(|(key, value)| within(named.get(key).unwrap_or(rest), value))
        && required
            .iter()
            .all(|name| pairs.iter().any(|(key, _)| name == key))
}

/// A struct is kept small, and so are numbers, so that values often fit.
fn schema() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!({"type": "null"})),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "contentEncoding": "base64", "maxLength": 8})),
        Just(json!({"x-forebay": "array"})),
        Just(json!({"$ref": "#/definitions/Tree"})),
        (-3..3, 0..5).prop_map(|(least, size)| json!({"type": "integer", "minimum": least, "exclusiveMaximum": least + size})),
        (-3..3).prop_map(|most| json!({"type": "number", "maximum": most})),
        (0..3, 0..3).prop_map(|(least, size)| json!({"type": "string", "minLength": least, "maxLength": least + size})),
        Just(json!({"enum": [null, 1, "a"]})),
        Just(json!({"const": "ab"})),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let few = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            few.clone().prop_map(|options| json!({"anyOf": options})),
            (inner.clone(), 0..3, 0..3).prop_map(|(items, least, size)| json!({"type": "array", "items": items, "minItems": least, "maxItems": least + size})),
            few.prop_map(|first| json!({"type": "array", "prefixItems": first, "items": false})),
            inner.clone().prop_map(|values| json!({"type": "object", "additionalProperties": values})),
            (inner.clone(), inner, any::<bool>()).prop_map(|(one, other, open)| {
                json!({"type": "object", "properties": {"a": one, "b": other}, "required": ["a"], "additionalProperties": open})
            }),
        ]
    })
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Plain(Json::Null)),
        any::<bool>().prop_map(|value| Tree::Plain(json!(value))),
        (-4..5).prop_map(|value| Tree::Plain(json!(value))),
        (-3.5..3.5_f64).prop_map(|value| Tree::Plain(json!(value))),
        "[abä]{0,4}".prop_map(|text| Tree::Plain(json!(text))),
        (0..9_usize).prop_map(Tree::Bytes),
        Just(Tree::Array),
        Just(Tree::Time),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::List),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|map| Tree::Map(map.into_iter().collect())),
        ]
    })
}

fn definitions() -> Map<String, Json> {
    let node = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/definitions/Tree"}}, "required": ["a"]});
    let tree = json!({"anyOf": [{"$ref": "#/definitions/Node"}, {"type": "array", "items": {"$ref": "#/definitions/Tree"}}, {"type": "null"}]});
    [("Node".to_owned(), node), ("Tree".to_owned(), tree)]
        .into_iter()
        .collect()
}

fn encoded(tree: &Tree) -> Vec<u8> {
    let mut writer = Writer::default();
    write(tree, &mut writer);
    writer.into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_compiled_check_agrees_with_the_specification(schema in schema(), trees in prop::collection::vec(tree(), 8)) {
        let definitions = definitions();
        let mut compiler = Compiler::new(&definitions);
        let id = compiler.compile(&schema).expect("a schema");
        let schemas = compiler.finish();
        for tree in &trees {
            let bytes = encoded(tree);
            let mut reader = Reader::new(&bytes);
            let checked = schemas.check(id, &mut reader);
            prop_assert_eq!(checked.is_ok(), fits(&schema, &definitions, tree, 0), "{} {:?} {:?}", schema, tree, checked);
            prop_assert!(checked.is_err() || reader.remaining() == 0, "it stops behind the value");
        }
    }

    #[test]
    fn bytes_that_are_no_message_never_panic(schema in schema(), tree in tree(), at in 0..64_usize, byte: u8) {
        let definitions = definitions();
        let mut compiler = Compiler::new(&definitions);
        let id = compiler.compile(&schema).expect("a schema");
        let schemas = compiler.finish();
        let mut bytes = encoded(&tree);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = schemas.check(id, &mut Reader::new(&bytes));
        bytes.truncate(at);
        prop_assert!(schemas.check(id, &mut Reader::new(&bytes)).is_err());
    }
}

#[test]
#[ignore = "a benchmark: what a check costs"]
fn what_a_check_costs() {
    const COUNT: u32 = 1_000_000;
    let integer = json!({"type": "integer"});
    let point = json!({"title": "Point", "type": "object", "required": ["x", "y"], "additionalProperties": false,
        "properties": {"x": {"type": "number"}, "y": {"type": "number"}, "label": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
    let parameter =
        |name: &str, schema: &Json| json!({"name": name, "required": true, "schema": schema});
    let small = [
        parameter("index", &integer),
        parameter("name", &json!({"type": "string"})),
        parameter("flag", &json!({"type": "boolean"})),
    ];
    let structs = [parameter(
        "points",
        &json!({"type": "array", "items": {"$ref": "#/definitions/Point"}}),
    )];
    let text = json!({"schema": 1, "app": "a", "target": "a.py", "code": "0", "sources": [], "definitions": {"Point": point},
        "requests": [{"name": "small", "parameters": small}, {"name": "structs", "parameters": structs}]});
    let manifest = Manifest::parse(text.to_string().as_bytes()).expect("a manifest");
    let mut small = Writer::default();
    small
        .map(3)
        .text("index")
        .unsigned(7_000)
        .text("name")
        .text("digits")
        .text("flag")
        .boolean(true);
    let mut structs = Writer::default();
    structs.map(1).text("points").array(10);
    for _ in 0..10 {
        structs
            .map(3)
            .text("x")
            .float(0.5)
            .text("y")
            .float(0.25)
            .text("label")
            .text("corner");
    }
    for (name, arguments) in [("small", small), ("structs", structs)] {
        let arguments = arguments.into_bytes();
        let began = std::time::Instant::now();
        for _ in 0..COUNT {
            std::hint::black_box(manifest.check(name, std::hint::black_box(&arguments)))
                .expect("fits");
        }
        println!(
            "{name}: {} ns",
            began.elapsed().as_nanos() / u128::from(COUNT)
        );
    }
}
