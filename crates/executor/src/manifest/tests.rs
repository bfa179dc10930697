//! A manifest as an application makes it, and arguments that fit and do not.

use super::*;
use crate::error::Error;
use crate::message::Writer;
use crate::request::Lane;

const TEXT: &str = r##"{"schema":1,"app":"digits","target":"digits.py:app","code":"0123456789abcdef",
"sources":["/a/digits.py"],"submitter":null,
"requests":[
 {"name":"classify","doc":"","lane":"short","priority":2,"timeout_s":1.5,"retries":3,"backoff_s":1.0,
  "backoff_max_s":300.0,"idempotent":true,"memory_bytes":100000000,"cpu":0.5,"concurrency":4,
  "concurrency_key":"user","cron":null,"result":null,"retention_s":2.5,
  "parameters":[
   {"name":"index","doc":"","required":true,"annotation":"int","schema":{"type":"integer","minimum":0}},
   {"name":"user","doc":"","required":false,"default":"me","annotation":"str","schema":{"type":"string"}},
   {"name":"point","doc":"","required":false,"annotation":"Point","schema":{"$ref":"#/definitions/Point"}},
   {"name":"raw","doc":"","required":false,"annotation":"bytes",
    "schema":{"type":"string","contentEncoding":"base64","x-forebay":"bytes"}},
   {"name":"image","doc":"","required":false,"annotation":"ndarray","schema":{"x-forebay":"array"}}]},
 {"name":"nightly","parameters":[],"cron":"0 3 * * *","concurrency":1}],
"definitions":{"Point":{"title":"Point","type":"object","properties":{"x":{"type":"number"},
  "near":{"type":"array","items":{"$ref":"#/definitions/Point"}}},"required":["x"],"additionalProperties":false}},
"services":[]}"##;

fn manifest() -> Manifest {
    Manifest::parse(TEXT.as_bytes()).expect("a manifest")
}

fn arguments(count: usize, fill: impl FnOnce(&mut Writer) -> &mut Writer) -> Vec<u8> {
    let mut writer = Writer::default();
    fill(writer.map(count));
    writer.into_bytes()
}

fn refused(count: usize, fill: impl FnOnce(&mut Writer) -> &mut Writer) -> Refusal {
    let arguments = arguments(count, fill);
    manifest()
        .check("classify", &arguments)
        .expect_err("refused")
}

#[test]
fn a_request_may_be_kept_for_a_time_of_its_own() {
    let ages = manifest().ages();
    assert_eq!(ages, [("classify".into(), 2_500)].into_iter().collect());
}

#[test]
fn options_of_a_request_become_the_machines() {
    let manifest = manifest();
    let classify = manifest.request("classify").expect("a request");
    let options = &classify.options;
    assert_eq!(
        (options.lane, options.priority, options.timeout_ms),
        (Lane::Short, 2, Some(1_500))
    );
    assert_eq!(
        (options.retries, options.backoff_ms, options.backoff_max_ms),
        (3, 1_000, 300_000)
    );
    assert_eq!(
        (options.memory_bytes, options.cpu_milli),
        (Some(100_000_000), 500)
    );
    assert_eq!(
        (
            options.key_at_once,
            classify.concurrency,
            options.idempotent
        ),
        (4, Some(4), true)
    );
    let nightly = manifest.request("nightly").expect("a request");
    assert_eq!(nightly.cron.as_deref(), Some("0 3 * * *"));
    assert_eq!(*nightly.options, Options::default());
    assert_eq!(
        (&*manifest.app, &*manifest.code, manifest.sources.len()),
        ("digits", "0123456789abcdef", 1)
    );
}

#[test]
fn arguments_that_fit_pass() {
    let manifest = manifest();
    let all = arguments(5, |w| {
        w.text("image")
            .ext(1, b"..")
            .text("index")
            .unsigned(7)
            .text("user")
            .text("you");
        w.text("raw")
            .binary(b"\xff")
            .text("point")
            .map(2)
            .text("x")
            .float(0.5);
        w.text("near").array(1).map(1).text("x").unsigned(1)
    });
    manifest.check("classify", &all).expect("fits");
    manifest
        .check("classify", &arguments(1, |w| w.text("index").unsigned(7)))
        .expect("fits");
    manifest.check("nightly", b"\x80").expect("fits");
}

#[test]
fn what_does_not_fit_names_request_parameter_value_and_what_was_expected() {
    let refusal = refused(1, |w| w.text("index").text("seven"));
    assert_eq!(refusal.code, "invalid");
    assert_eq!(
        refusal.message,
        "classify: parameter index: expected an integer from 0, got \"seven\""
    );
    assert_eq!(
        refusal.next,
        "its parameters are index, user, point, raw, image"
    );
    let refusal = refused(2, |w| {
        w.text("index")
            .unsigned(1)
            .text("point")
            .map(2)
            .text("x")
            .unsigned(1);
        w.text("near")
            .array(2)
            .map(1)
            .text("x")
            .unsigned(1)
            .map(1)
            .text("x")
            .nil()
    });
    assert_eq!(refusal.object, "classify: parameter point.near[1].x");
    assert_eq!((&*refusal.limit, &*refusal.value), ("a number", "null"));
    let refusal = refused(2, |w| w.text("index").unsigned(1).text("raw").text("abc"));
    assert_eq!(refusal.limit, "bytes");
    let refusal = refused(2, |w| w.text("index").unsigned(1).text("image").array(0));
    assert_eq!(refusal.limit, "a numpy array");
    let refusal = refused(2, |w| w.text("index").unsigned(1).text("point").map(0));
    assert_eq!(
        refusal.message,
        "classify: parameter point.x: expected this field, got nothing"
    );
}

#[test]
fn names_that_are_missing_twice_or_misspelt_are_refused() {
    let refusal = refused(1, |w| w.text("idnex").unsigned(7));
    assert_eq!(refusal.message, "classify: there is no parameter \"idnex\"");
    assert_eq!(refusal.next, "did you mean \"index\"?");
    let refusal = refused(1, |w| w.text("user").text("me"));
    assert_eq!(refusal.message, "classify: parameter index is missing");
    let refusal = refused(2, |w| w.text("index").unsigned(7).text("index").unsigned(7));
    assert!(
        refusal.message.ends_with("expected one value, got two"),
        "{refusal}"
    );
    let refusal = refused(2, |w| {
        w.text("index")
            .unsigned(7)
            .text("point")
            .map(2)
            .text("x")
            .unsigned(1)
            .text("nera")
            .nil()
    });
    assert_eq!(refusal.next, "did you mean \"near\"?");
    let refusal = manifest().check("clasify", b"\x80").expect_err("refused");
    assert_eq!(
        (refusal.code, &*refusal.next),
        ("unknown", "did you mean \"classify\"?")
    );
    let refusal = manifest()
        .check("nightly", b"\x81\xa1a\x01")
        .expect_err("refused");
    assert_eq!(refusal.next, "it takes no arguments");
}

#[test]
fn what_is_no_map_of_arguments_is_refused() {
    for encoded in [
        &b""[..],
        b"\x90",
        b"\x81\x01\x02",
        b"\x81\xa5index",
        b"\x81\xa5index\x01\x02",
        b"\xc1",
    ] {
        let refusal = manifest().check("classify", encoded).expect_err("refused");
        assert_eq!(refusal.code, "invalid", "{encoded:?}");
    }
}

#[test]
fn a_key_is_the_parameters_value_or_its_default() {
    let manifest = manifest();
    let classify = manifest.request("classify").expect("a request");
    let key = |encoded: &[u8]| classify.key(encoded).expect("a key").to_string();
    let given = arguments(2, |w| w.text("index").unsigned(1).text("user").text("me"));
    assert_eq!(key(&given), "classify: user=\"me\"");
    assert_eq!(
        key(&arguments(1, |w| w.text("index").unsigned(1))),
        key(&given)
    );
    let long = |last: &str| {
        key(&arguments(1, |w| {
            w.text("user").text(&("ä".repeat(300) + last))
        }))
    };
    assert_ne!(long("a"), long("b"));
    assert!(long("a").len() < 256);
    let nightly = manifest.request("nightly").expect("a request");
    assert_eq!(nightly.key(b"\x80").as_deref(), Some("nightly"));
}

#[test]
fn a_manifest_that_is_wrong_says_where() {
    let cases = [
        ("{", "no JSON"),
        ("[]", "an object was expected"),
        (r#"{"schema":2}"#, "version 2, this server reads 1"),
        (
            r#"{"schema":1,"requests":[{"name":"f","parameters":[{"name":"x","schema":{"type":"odd"}}]}]}"#,
            r#"requests[0].parameters[0].schema: type "odd" is unknown"#,
        ),
        (
            r##"{"schema":1,"requests":[{"name":"f","parameters":[{"name":"x","schema":{"$ref":"#/definitions/A"}}]}]}"##,
            "refers to nothing",
        ),
        (
            r#"{"schema":1,"requests":[{"name":"f","parameters":[],"lane":"fast"}]}"#,
            r#"requests[0].lane: "fast" is not a lane"#,
        ),
        (
            r#"{"schema":1,"requests":[{"name":"f","parameters":[],"retries":-1}]}"#,
            "requests[0].retries: expected a count, got -1",
        ),
        (
            r#"{"schema":1,"requests":[{"name":"f","parameters":[],"concurrency":1,"concurrency_key":"u"}]}"#,
            "no parameter \"u\"",
        ),
        (
            r#"{"schema":1,"requests":[{"name":"f","parameters":[]},{"name":"f","parameters":[]}]}"#,
            "a second request \"f\"",
        ),
        (
            r#"{"schema":1,"requests":[],"sources":[],"app":7}"#,
            "app: expected text, got 7",
        ),
    ];
    for (text, expected) in cases {
        let error = Manifest::parse(text.as_bytes()).expect_err(text);
        assert!(matches!(error, Error::Config(_)));
        assert!(error.to_string().contains(expected), "{error}");
    }
}
