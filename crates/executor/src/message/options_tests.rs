//! Options on top of defaults, and what is refused.

use super::*;
use crate::message::Writer;

const SPAN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn read(fill: impl FnOnce(&mut Writer) -> &mut Writer, pairs: usize) -> Answer<RequestedOptions> {
    let mut writer = Writer::default();
    writer.map(pairs);
    fill(&mut writer);
    options(&writer.into_bytes(), &Arc::default(), 1_000)
}

#[test]
fn without_options_the_defaults_are_shared() {
    let defaults = Arc::new(Options::default());
    for encoded in [&b"\xc0"[..], b"\x80"] {
        let asked = options(encoded, &defaults, 0).expect("read");
        assert!(Arc::ptr_eq(&asked.options, &defaults));
    }
}

#[test]
fn every_option_changes_what_it_names() {
    fn id() -> RequestId {
        RequestId(99)
    }
    fn fill(w: &mut Writer) -> &mut Writer {
        w.text("lane").text("short").text("priority").integer(-5);
        w.text("timeout_s").float(1.5).text("retries").unsigned(3);
        w.text("backoff_s")
            .unsigned(2)
            .text("backoff_max_s")
            .unsigned(9);
        w.text("idempotent")
            .boolean(true)
            .text("key")
            .text("user 7");
        w.text("key_at_once")
            .unsigned(4)
            .text("idempotency")
            .text("once");
        w.text("memory_bytes")
            .unsigned(1 << 30)
            .text("cpu")
            .float(0.25);
        w.text("after")
            .array(2)
            .text(&id().to_string())
            .unsigned(id().0);
        w.text("traceparent").text(SPAN);
        w.text("parent").text(&id().to_string());
        w.text("call").unsigned(12).text("attempt").unsigned(2);
        w.text("quota")
            .unsigned(9)
            .text("delay_s")
            .float(0.5)
            .text("submitter")
            .text("me")
    }
    let asked = read(fill, NAMES.len()).expect("read");
    let expected = Options {
        lane: Lane::Short,
        priority: -5,
        timeout_ms: Some(1_500),
        retries: 3,
        backoff_ms: 2_000,
        backoff_max_ms: 9_000,
        idempotent: true,
        key: Some("user 7".into()),
        key_at_once: 4,
        idempotency: Some("once".into()),
        memory_bytes: Some(1 << 30),
        cpu_milli: 250,
        ahead: 0,
        after: vec![id(), id()],
        not_before: Some(1_500),
        traceparent: Some(SPAN.into()),
        parent: Some(id()),
        child: Some(Child {
            call: 12,
            attempt: 2,
            ..Child::default()
        }),
        by: None,
        sealed: false,
        quota: Some(9),
    };
    assert_eq!(*asked.options, expected);
    assert_eq!(asked.submitter.as_deref(), Some("me"));
}

#[test]
fn a_call_without_the_parent_that_makes_it_is_refused() {
    let fill: fn(&mut Writer) -> &mut Writer = |w| w.text("call").unsigned(0);
    let refused = read(fill, 1).expect_err("refused").to_string();
    assert!(
        refused.contains("option call: expected a parent beside it"),
        "{refused}"
    );
}

#[test]
fn a_value_that_is_not_allowed_names_option_value_and_what_is() {
    type Fill = fn(&mut Writer) -> &mut Writer;
    let cases: [(&str, Fill, &str, &str); 15] = [
        ("lane", |w| w.text("slow"), "\"short\"", "\"slow\""),
        ("lane", |w| w.text("async"), "not an async def", "\"async\""),
        ("priority", |w| w.float(1.0), "an integer", "1"),
        ("timeout_s", |w| w.unsigned(0), "more than 0", "0"),
        ("timeout_s", |w| w.float(f64::NAN), "seconds", "NaN"),
        ("backoff_s", |w| w.float(-0.5), "from 0", "-0.5"),
        ("retries", |w| w.integer(-1), "from 0 to 1000", "-1"),
        ("key_at_once", |w| w.unsigned(0), "from 1", "0"),
        ("idempotent", |w| w.unsigned(1), "true or false", "1"),
        ("memory_bytes", |w| w.integer(-1), "bytes", "-1"),
        ("cpu", |w| w.float(f64::INFINITY), "cores", "inf"),
        ("after", |w| w.array(1).text("x"), "12 characters", "\"x\""),
        ("parent", |w| w.text("x"), "12 characters", "\"x\""),
        ("parent", |w| w.boolean(true), "12 characters", "true"),
        (
            "traceparent",
            |w| w.text("00-1"),
            "00-(32 digits)",
            "\"00-1\"",
        ),
    ];
    for (name, fill, allowed, value) in cases {
        let refusal = read(|w| fill(w.text(name)), 1).expect_err(name);
        assert_eq!(
            (refusal.code, refusal.object),
            ("invalid", format!("option {name}"))
        );
        assert!(refusal.limit.contains(allowed), "{name}: {}", refusal.limit);
        assert_eq!(refusal.value, value, "{name}");
    }
}

#[test]
fn a_misspelt_option_gets_the_nearest_name() {
    let refusal = read(|w| w.text("timeout").unsigned(1), 1).expect_err("refused");
    assert_eq!(refusal.code, "unknown");
    assert_eq!(refusal.next, "did you mean \"timeout_s\"?");
    let refusal = read(|w| w.text("nonsense_word").unsigned(1), 1).expect_err("refused");
    assert!(refusal.next.starts_with("there are lane, priority"));
}

#[test]
fn text_that_is_too_long_is_cut_in_the_message() {
    let long = "x".repeat(300);
    let refusal = read(|w| w.text("key").text(&long), 1).expect_err("refused");
    assert!(refusal.value.len() < 100, "{}", refusal.value);
    assert!(refusal.value.ends_with("(300 bytes)"));
}

#[test]
fn a_back_off_above_its_maximum_raises_it() {
    let asked = read(|w| w.text("backoff_s").unsigned(600), 1).expect("read");
    assert_eq!(asked.options.backoff_max_ms, 600_000);
}

#[test]
fn a_traceparent_is_one_of_the_w3c() {
    let later = format!("cc-{}", &SPAN[3..]);
    for good in [SPAN, &later, &format!("{later}-more")] {
        assert!(is_traceparent(good), "{good}");
    }
    let zeros = |count| "0".repeat(count);
    for wrong in [
        "",
        "00",
        &SPAN[..54],
        &format!("{SPAN}-more"),
        &format!("{later}more"),
        &format!("ff-{}", &SPAN[3..]),
        &SPAN.to_uppercase(),
        &SPAN.replace('-', "_"),
        &format!("00-{}-00f067aa0ba902b7-01", zeros(32)),
        &format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", zeros(16)),
        &format!("\u{fc}{}", &SPAN[2..]),
        &format!("{later}-{}", zeros(OPTION_TEXT_BYTES_MAX)),
    ] {
        assert!(!is_traceparent(wrong), "{wrong}");
    }
}

#[test]
fn nil_is_no_parent() {
    let asked = read(|w| w.text("parent").nil().text("traceparent").nil(), 2).expect("read");
    assert_eq!(
        (asked.options.parent, &asked.options.traceparent),
        (None, &None)
    );
}
