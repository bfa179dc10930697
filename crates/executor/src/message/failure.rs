//! The JSON of a failure, as it is stored.

use std::fmt::Write;

use super::{Reader, Value};
use crate::request::{Death, Failure, Outcome};

/// The cause of an end without success; `{"kind":"cancelled"}` for a cancelled one, `null` for a success.
pub fn cause_json(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Succeeded(_) | Outcome::InFile(_) => "null".into(),
        Outcome::Failed(failure) => failure_json(failure),
        Outcome::Cancelled => Object::of("cancelled").close(),
    }
}

/// One object with its `kind`.
pub fn failure_json(failure: &Failure) -> String {
    match failure {
        Failure::Raised(described) => raised_json(described),
        Failure::Died(death) => death_json(death),
        #[allow(clippy::cast_precision_loss)] // exact up to 285,000 years
        Failure::TimedOut { timeout_ms } => Object::of("timed_out")
            .number("timeout_s", Some(*timeout_ms as f64 / 1e3))
            .close(),
        Failure::After(id) => Object::of("after").text("id", &id.to_string()).close(),
        Failure::OutcomeUnknown => Object::of("outcome_unknown").close(),
        Failure::Unkept(message) => Object::of("unkept").text("message", message).close(),
        Failure::Refused(message) => Object::of("refused").text("message", message).close(),
    }
}

fn death_json(death: &Death) -> String {
    Object::of("died")
        .text("cause", &death.cause)
        .number("pid", Some(death.pid))
        .number("exit_code", death.exit_code)
        .number("signal", death.signal)
        .number("peak_bytes", death.peak_bytes)
        .number("limit_bytes", death.limit_bytes)
        .text("last_output", &death.last_output)
        .close()
}

/// Characters of the line about a failure in its summary.
const SUMMARY_CHARS_MAX: usize = 500;

/// The kind of an end without success and one line about it, for readers outside of the server: without the traceback
/// and the last output. `withheld`: also without messages, since one may quote a secret argument.
pub fn summary_json(outcome: &Outcome, withheld: bool) -> String {
    let (kind, line) = match outcome {
        Outcome::Succeeded(_) | Outcome::InFile(_) => return "null".into(),
        Outcome::Cancelled => ("cancelled", String::new()),
        Outcome::Failed(failure) => summary(failure, withheld),
    };
    let line = line.lines().next().unwrap_or_default();
    let line: String = line.chars().take(SUMMARY_CHARS_MAX).collect();
    Object::of_named("cause", kind)
        .text("message", &line)
        .close()
}

fn summary(failure: &Failure, withheld: bool) -> (&'static str, String) {
    let open = |message: &str| if withheld { "" } else { message }.to_owned();
    match failure {
        Failure::Raised(described) => {
            let [_, name, message, _] = raised_texts(described);
            let message = open(message);
            let colon = if message.is_empty() { "" } else { ": " };
            ("raised", format!("{name}{colon}{message}"))
        }
        Failure::Died(death) => ("died", death_line(death)),
        #[allow(clippy::cast_precision_loss)] // exact up to 285,000 years
        Failure::TimedOut { timeout_ms } => {
            let seconds = *timeout_ms as f64 / 1e3;
            ("timed_out", format!("it ran for {seconds} s"))
        }
        Failure::After(id) => ("after", format!("request {id} did not succeed")),
        Failure::OutcomeUnknown => ("outcome_unknown", String::new()),
        Failure::Unkept(message) => ("unkept", open(message)),
        Failure::Refused(message) => ("refused", open(message)),
    }
}

fn death_line(death: &Death) -> String {
    let cause = &death.cause;
    match (death.signal, death.exit_code) {
        (Some(signal), _) => format!("{cause}, signal {signal}"),
        (None, Some(code)) => format!("{cause}, exit code {code}"),
        (None, None) => cause.to_string(),
    }
}

/// Fields of what was raised.
const FIELDS: [&str; 4] = ["builtin", "name", "message", "trace"];

/// From the worker's map; a missing field stays empty.
fn raised_texts(described: &[u8]) -> [&str; 4] {
    let mut values = ["Exception", "Exception", "", ""];
    let mut reader = Reader::new(described);
    let pairs = reader.map_or_nil().ok().flatten().unwrap_or(0);
    for _ in 0..pairs {
        let Ok(Value::Str(name)) = reader.value() else {
            break;
        };
        let index = FIELDS.iter().position(|&field| field == name);
        let mut ahead = reader.clone();
        if let (Some(index), Ok(Value::Str(text))) = (index, ahead.value()) {
            values[index] = text;
        }
        if reader.skip().is_err() {
            break;
        }
    }
    values
}

fn raised_json(described: &[u8]) -> String {
    let mut object = Object::of("raised");
    for (name, value) in FIELDS.into_iter().zip(raised_texts(described)) {
        object = object.text(name, value);
    }
    object.close()
}

/// A JSON object that is being written.
struct Object(String);

impl Object {
    fn of(kind: &str) -> Self {
        Self::of_named("kind", kind)
    }

    /// With its first field, a word.
    fn of_named(name: &str, word: &str) -> Self {
        Self(format!("{{\"{name}\":\"{word}\""))
    }

    fn text(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        quote(&mut self.0, value);
        self
    }

    fn number(mut self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        self.name(name);
        match value {
            Some(value) => write!(self.0, "{value}"),
            None => self.0.write_str("null"),
        }
        .unwrap_or_default(); // a String takes everything
        self
    }

    fn name(&mut self, name: &str) {
        let _ = write!(self.0, ",\"{name}\":");
    }

    fn close(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Append `text` as a JSON string.
fn quote(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\u{0}'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(json, "\\u{:04x}", u32::from(character));
            }
            _ => json.push(character),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RequestId;
    use crate::message::Writer;

    #[test]
    fn what_was_raised_keeps_its_four_texts() {
        let mut writer = Writer::default();
        writer.map(6).text("kind").text("raised");
        writer.text("builtin").text("ValueError");
        writer.text("name").text("app.Bad");
        writer.text("message").text("a \"b\"\n\u{1}");
        writer.text("extra").array(1).nil();
        writer.text("trace").text("File \\x");
        let json = failure_json(&Failure::Raised(writer.into_bytes().into()));
        assert_eq!(
            json,
            r#"{"kind":"raised","builtin":"ValueError","name":"app.Bad","message":"a \"b\"\n\u0001","trace":"File \\x"}"#
        );
    }

    #[test]
    fn a_description_that_cannot_be_read_is_still_a_failure() {
        for broken in [
            &b""[..],
            b"\x81",
            b"\x81\x01\x01",
            b"\x81\xa7message",
            b"\xff",
        ] {
            let json = failure_json(&Failure::Raised(broken.into()));
            assert_eq!(
                json,
                r#"{"kind":"raised","builtin":"Exception","name":"Exception","message":"","trace":""}"#
            );
        }
    }

    #[test]
    fn a_death_says_what_is_known_and_null_for_the_rest() {
        let death = Death {
            cause: "memory".into(),
            pid: 7,
            exit_code: None,
            signal: Some(9),
            peak_bytes: Some(300),
            limit_bytes: None,
            last_output: "bye".into(),
        };
        assert_eq!(
            failure_json(&Failure::Died(death)),
            r#"{"kind":"died","cause":"memory","pid":7,"exit_code":null,"signal":9,"peak_bytes":300,"limit_bytes":null,"last_output":"bye"}"#
        );
    }

    #[test]
    fn the_other_causes_are_one_word_and_a_value() {
        let json = |failure| failure_json(&failure);
        assert_eq!(
            json(Failure::TimedOut { timeout_ms: 1_500 }),
            r#"{"kind":"timed_out","timeout_s":1.5}"#
        );
        assert_eq!(
            json(Failure::After(RequestId(1))),
            r#"{"kind":"after","id":"000000000001"}"#
        );
        assert_eq!(
            json(Failure::Unkept("no".into())),
            r#"{"kind":"unkept","message":"no"}"#
        );
        assert_eq!(
            json(Failure::Refused("no".into())),
            r#"{"kind":"refused","message":"no"}"#
        );
        assert_eq!(cause_json(&Outcome::Cancelled), r#"{"kind":"cancelled"}"#);
    }

    #[test]
    fn a_summary_is_one_line_without_trace_and_output() {
        let json = |failure, withheld| summary_json(&Outcome::Failed(failure), withheld);
        let mut writer = Writer::default();
        writer.map(3).text("name").text("app.Bad");
        let long = format!("password \"x\" {}\nsecond", "é".repeat(600));
        writer.text("message").text(&long);
        writer.text("trace").text("File x");
        let raised = Failure::Raised(writer.into_bytes().into());
        let told = json(raised.clone(), false);
        assert!(told.starts_with(r#"{"cause":"raised","message":"app.Bad: password \"x\" éé"#));
        assert!(told.chars().count() < 550 && !told.contains("second") && !told.contains("File"));
        assert_eq!(
            json(raised, true),
            r#"{"cause":"raised","message":"app.Bad"}"#
        );
        let death = Death {
            cause: "memory".into(),
            pid: 7,
            exit_code: None,
            signal: Some(9),
            peak_bytes: None,
            limit_bytes: None,
            last_output: "password".into(),
        };
        assert_eq!(
            json(Failure::Died(death), true),
            r#"{"cause":"died","message":"memory, signal 9"}"#
        );
        assert_eq!(
            json(Failure::Refused("secret".into()), true),
            r#"{"cause":"refused","message":""}"#
        );
        assert_eq!(
            summary_json(&Outcome::Cancelled, false),
            r#"{"cause":"cancelled","message":""}"#
        );
    }
}
