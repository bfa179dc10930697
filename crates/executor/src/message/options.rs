//! The options of a submission on top of its definition's.

use std::sync::Arc;

use super::{Reader, Value, call};
use crate::error::{Error, Refusal};
use crate::id::RequestId;
use crate::limit::{AFTER_MAX, CPU_MAX, OPTION_TEXT_BYTES_MAX, OPTION_TIME_MS_MAX, RETRIES_MAX};
use crate::request::{Child, Lane, Millis, Options};
use crate::schema::shown;

const NAMES: [&str; 20] = [
    "lane",
    "priority",
    "timeout_s",
    "retries",
    "backoff_s",
    "backoff_max_s",
    "idempotent",
    "key",
    "key_at_once",
    "idempotency",
    "memory_bytes",
    "cpu",
    "after",
    "delay_s",
    "submitter",
    "traceparent",
    "parent",
    "call",
    "attempt",
    "quota",
];

/// The options of a submission.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedOptions {
    /// The defaults themselves if the submission changes none.
    pub options: Arc<Options>,
    pub submitter: Option<Arc<str>>,
}

type Answer<T> = Result<T, Refusal>;

/// Read a map of options, or nil, on top of `defaults`. A delay counts from `now`.
///
/// # Errors
/// A [`Refusal`] that names the option, its value and what is allowed.
pub fn options(encoded: &[u8], defaults: &Arc<Options>, now: Millis) -> Answer<RequestedOptions> {
    let mut reader = Reader::new(encoded);
    let pairs = reader.map_or_nil().map_err(unreadable)?.unwrap_or(0);
    let mut asked = RequestedOptions {
        options: Arc::clone(defaults),
        submitter: None,
    };
    if pairs > 0 {
        for _ in 0..pairs {
            let name = reader.text().map_err(unreadable)?;
            let mut given = Given { name, reader };
            if name == "submitter" {
                asked.submitter = given.text()?;
            } else {
                // Unchanged options are shared by all requests of a name: 200 bytes of each.
                given.set(Arc::make_mut(&mut asked.options), now)?;
            }
            reader = given.reader;
        }
        if asked.options.child.is_some() && asked.options.parent.is_none() {
            let next = "submit it with ctx.submit, which names both";
            return Err(Refusal::invalid(
                "option call",
                "a parent beside it",
                "none",
                next,
            ));
        }
        if asked.options.backoff_max_ms < asked.options.backoff_ms {
            let options = Arc::make_mut(&mut asked.options);
            options.backoff_max_ms = options.backoff_ms;
        }
    }
    reader.end().map_err(unreadable)?;
    Ok(asked)
}

/// What says that it is a child, made with the first of its parts.
fn child_of(options: &mut Options) -> &mut Child {
    options.child.get_or_insert_default()
}

#[allow(clippy::needless_pass_by_value)] // the argument of `map_err`
fn unreadable(error: Error) -> Refusal {
    Refusal::invalid(
        "options",
        "a map of options",
        &error.to_string(),
        "submit with a client of this version",
    )
}

/// One option, with a reader at its value.
struct Given<'a> {
    name: &'a str,
    reader: Reader<'a>,
}

impl<'a> Given<'a> {
    fn set(&mut self, options: &mut Options, now: Millis) -> Answer<()> {
        match self.name {
            "lane" => options.lane = self.lane(options.lane)?,
            "priority" => options.priority = self.integer(-1_000_000, 1_000_000)?,
            "timeout_s" => options.timeout_ms = self.millis(true)?,
            "retries" => options.retries = self.integer(0, RETRIES_MAX)?,
            "backoff_s" => options.backoff_ms = self.millis(false)?.unwrap_or(0),
            "backoff_max_s" => options.backoff_max_ms = self.millis(false)?.unwrap_or(0),
            "idempotent" => options.idempotent = self.boolean()?,
            "key" => options.key = self.text()?,
            "key_at_once" => options.key_at_once = self.integer(1, u32::MAX)?,
            "idempotency" => options.idempotency = self.text()?,
            "quota" => options.quota = Some(self.integer(1, u32::MAX)?),
            "memory_bytes" => options.memory_bytes = self.bytes()?,
            "cpu" => options.cpu_milli = self.cpu()?,
            "after" => options.after = self.after()?,
            "traceparent" => options.traceparent = self.traceparent()?,
            "parent" => options.parent = self.id_or_nil()?,
            "call" => child_of(options).call = self.integer(0, u32::MAX)?,
            "attempt" => child_of(options).attempt = self.integer(0, u32::MAX)?,
            "delay_s" => {
                let delay = self.millis(false)?;
                options.not_before = delay.map(|delay| now.saturating_add(delay));
            }
            _ => return Err(self.unknown()),
        }
        Ok(())
    }

    fn unknown(&self) -> Refusal {
        let nearest = crate::nearest::nearest(self.name, NAMES);
        let next = match nearest {
            Some(name) => format!("did you mean {name:?}?"),
            None => format!("there are {}", NAMES.join(", ")),
        };
        Refusal::unknown("option", self.name, next)
    }

    fn value(&mut self) -> Answer<Value<'a>> {
        self.reader.value().map_err(unreadable)
    }

    fn refuse(&self, allowed: &str, value: &Value<'_>) -> Refusal {
        let object = format!("option {}", self.name);
        Refusal::invalid(
            &object,
            allowed,
            &shown(value),
            "submit it with such a value",
        )
    }

    fn lane(&mut self, default: Lane) -> Answer<Lane> {
        let value = self.value()?;
        let lane = match value {
            Value::Str("short") => Lane::Short,
            Value::Str("long") => Lane::Long,
            Value::Str("async") => Lane::Async,
            _ => return Err(self.refuse("\"short\", \"long\" or \"async\"", &value)),
        };
        match (default == Lane::Async, lane == Lane::Async) {
            (true, false) => Err(self.refuse("\"async\", as the request is an async def", &value)),
            (false, true) => Err(self.refuse(
                "\"short\" or \"long\", as the request is not an async def",
                &value,
            )),
            _ => Ok(lane),
        }
    }

    /// An integer from `least` to `most`.
    fn integer<T>(&mut self, least: T, most: T) -> Answer<T>
    where
        T: TryFrom<i64> + PartialOrd + std::fmt::Display + Copy,
    {
        let value = self.value()?;
        if let Value::Int(number) = value
            && let Ok(number) = T::try_from(number)
            && number >= least
            && number <= most
        {
            return Ok(number);
        }
        Err(self.refuse(&format!("an integer from {least} to {most}"), &value))
    }

    /// Seconds, at least a millisecond if it must be `positive`; nil is no time.
    fn millis(&mut self, positive: bool) -> Answer<Option<u64>> {
        let value = self.value()?;
        #[allow(clippy::cast_precision_loss)] // far below 2^53
        let (least, most) = (f64::from(u8::from(positive)), OPTION_TIME_MS_MAX as f64);
        let seconds = match value {
            Value::Nil => return Ok(None),
            #[allow(clippy::cast_precision_loss)] // what is that large is refused
            Value::Int(seconds) => seconds as f64,
            Value::Float(seconds) => seconds,
            _ => f64::NAN,
        };
        let millis = (seconds * 1e3).ceil();
        if !(least..=most).contains(&millis) {
            let least = if positive { "more than 0" } else { "from 0" };
            let allowed = format!("seconds, {least} to {}", OPTION_TIME_MS_MAX / 1_000);
            return Err(self.refuse(&allowed, &value));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // its range is checked
        Ok(Some(millis as u64))
    }

    fn boolean(&mut self) -> Answer<bool> {
        match self.value()? {
            Value::Bool(value) => Ok(value),
            value => Err(self.refuse("true or false", &value)),
        }
    }

    fn text(&mut self) -> Answer<Option<Arc<str>>> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::Str(text) if (1..=OPTION_TEXT_BYTES_MAX).contains(&text.len()) => {
                Ok(Some(text.into()))
            }
            value => {
                let allowed = format!("text of 1 to {OPTION_TEXT_BYTES_MAX} bytes");
                Err(self.refuse(&allowed, &value))
            }
        }
    }

    fn bytes(&mut self) -> Answer<Option<u64>> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::Int(bytes @ 0..) => Ok(Some(bytes.unsigned_abs())),
            value => Err(self.refuse("a number of bytes", &value)),
        }
    }

    fn cpu(&mut self) -> Answer<u32> {
        let value = self.value()?;
        let cores = match value {
            #[allow(clippy::cast_precision_loss)] // what is that large is refused
            Value::Int(cores) => cores as f64,
            Value::Float(cores) => cores,
            _ => f64::NAN,
        };
        if !(0.0..=f64::from(CPU_MAX)).contains(&cores) {
            return Err(self.refuse(&format!("cores, from 0 to {CPU_MAX}"), &value));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // its range is checked
        Ok((cores * 1e3).round() as u32)
    }

    fn after(&mut self) -> Answer<Vec<RequestId>> {
        let allowed = format!("a list of at most {AFTER_MAX} ids");
        let value = self.value()?;
        let count = match value {
            Value::Array(count) if count <= AFTER_MAX => count,
            Value::Nil => 0,
            _ => return Err(self.refuse(&allowed, &value)),
        };
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            ids.push(self.id("ids of 12 characters")?);
        }
        Ok(ids)
    }

    fn id(&mut self, allowed: &str) -> Answer<RequestId> {
        let value = self.reader.clone().value().map_err(unreadable)?;
        let id = call::id(&mut self.reader);
        id.map_err(|_| self.refuse(allowed, &value))
    }

    fn id_or_nil(&mut self) -> Answer<Option<RequestId>> {
        if self.reader.clone().value().map_err(unreadable)? == Value::Nil {
            return self.value().map(|_| None);
        }
        self.id("the id of a request, 12 characters").map(Some)
    }

    fn traceparent(&mut self) -> Answer<Option<Arc<str>>> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::Str(text) if is_traceparent(text) => Ok(Some(text.into())),
            value => Err(self.refuse("a traceparent, as in 00-(32 digits)-(16 digits)-01", &value)),
        }
    }
}

/// Whether a text is a `traceparent` of version 00, or of a later one that begins as that does.
///
/// Source: W3C Trace Context, section 3.2.
fn is_traceparent(text: &str) -> bool {
    const FIELDS: [(usize, usize); 4] = [(0, 2), (3, 32), (36, 16), (53, 2)];
    const BYTES: usize = 55;
    let bytes = text.as_bytes();
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let field = |(at, count): (usize, usize)| &bytes[at..at + count];
    let is_zero = |at| field(at).iter().all(|byte| *byte == b'0');
    let fits = match text.get(..2) {
        Some("00") => bytes.len() == BYTES,
        Some("ff") | None => false,
        Some(_) => {
            (BYTES..=OPTION_TEXT_BYTES_MAX).contains(&bytes.len())
                && bytes.get(BYTES).is_none_or(|byte| *byte == b'-')
        }
    };
    fits && [2, 35, 52].iter().all(|at| bytes[*at] == b'-')
        && FIELDS.iter().all(|at| field(*at).iter().all(is_hex))
        && !is_zero(FIELDS[1])
        && !is_zero(FIELDS[2])
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
