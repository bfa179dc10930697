//! Reads the manifest's JSON.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Described, MANIFEST_SCHEMA, Manifest};
use crate::error::{Error, Result};
use crate::limit::{AHEAD_MAX, CPU_MAX, OPTION_TIME_MS_MAX, RETRIES_MAX};
use crate::request::{Lane, Options};
use crate::schema::{Compiler, Field, Set};

pub fn parse(text: &[u8]) -> Result<Manifest> {
    let json: Value =
        serde_json::from_slice(text).map_err(|error| wrong("", &format!("no JSON: {error}")))?;
    let whole = Part::of(&json, "")?;
    let version = whole.count("schema")?;
    if version != Some(MANIFEST_SCHEMA) {
        let version = version.map_or("none".into(), |version| version.to_string());
        let why = format!(
            "version {version}, this server reads {MANIFEST_SCHEMA}; use one version of forebay on both sides"
        );
        return Err(wrong("schema", &why));
    }
    let none = Map::new();
    let definitions = whole
        .map
        .get("definitions")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    let mut compiler = Compiler::new(definitions);
    let mut requests = Vec::new();
    let mut by_name = HashMap::new();
    for (number, request) in whole.list("requests")?.iter().enumerate() {
        let path = format!("requests[{number}]");
        let request = described(&Part::of(request, &path)?, &mut compiler)?;
        if by_name.insert(Arc::clone(&request.name), number).is_some() {
            return Err(wrong(
                &path,
                &format!("a second request {:?}", request.name),
            ));
        }
        requests.push(request);
    }
    let sources = whole.list("sources")?.iter().filter_map(Value::as_str);
    Ok(Manifest {
        app: whole.text("app")?.into(),
        target: whole.text("target")?.into(),
        code: whole.text("code")?.into(),
        submitter: whole.optional_text("submitter")?.map(Into::into),
        sources: sources.map(PathBuf::from).collect(),
        text: text.into(),
        requests,
        by_name,
        schemas: compiler.finish(),
    })
}

fn described<'a>(request: &Part<'a>, compiler: &mut Compiler<'a>) -> Result<Described> {
    let (mut parameters, mut defaults) = (Vec::new(), Vec::new());
    let (mut required, mut secrets) = (Set::default(), Set::default());
    for (number, parameter) in request.list("parameters")?.iter().enumerate() {
        let path = format!("{}.parameters[{number}]", request.path);
        let parameter = Part::of(parameter, &path)?;
        if number >= Set::SIZE {
            return Err(wrong(
                &path,
                &format!("fields_max is {} parameters", Set::SIZE),
            ));
        }
        let anything = &Value::Bool(true);
        let schema = parameter.map.get("schema").unwrap_or(anything);
        let made = compiler
            .compile(schema)
            .map_err(|why| wrong(&format!("{path}.schema"), &why))?;
        parameters.push(Field {
            name: parameter.text("name")?.into(),
            schema: made,
        });
        if parameter.flag("required")? {
            required.add(number);
        }
        if parameter.flag("secret")? {
            secrets.add(number);
        }
        defaults.push(
            parameter
                .map
                .get("default")
                .map(Value::to_string)
                .unwrap_or_default(),
        );
    }
    let key = request.optional_text("concurrency_key")?;
    let key = key.map(|key| {
        let found = parameters
            .iter()
            .position(|parameter| *parameter.name == *key);
        found.ok_or_else(|| {
            wrong(
                &format!("{}.concurrency_key", request.path),
                &format!("there is no parameter {key:?}"),
            )
        })
    });
    let concurrency = request.whole("concurrency", 1, u32::MAX)?;
    Ok(Described {
        name: request.text("name")?.into(),
        options: Arc::new(options(request, concurrency)?),
        concurrency,
        cron: request.optional_text("cron")?.map(Into::into),
        retention_ms: request.millis("retention_s")?,
        key: key.transpose()?,
        parameters,
        required,
        secrets,
        defaults,
    })
}

fn options(request: &Part<'_>, concurrency: Option<u32>) -> Result<Options> {
    let usual = Options::default();
    let lane = match request.optional_text("lane")? {
        None | Some("long") => Lane::Long,
        Some("short") => Lane::Short,
        Some("async") => Lane::Async,
        Some(other) => {
            return Err(wrong(
                &format!("{}.lane", request.path),
                &format!("{other:?} is not a lane"),
            ));
        }
    };
    let priority = request
        .map
        .get("priority")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    Ok(Options {
        lane,
        priority: i32::try_from(priority)
            .map_err(|_| wrong(&format!("{}.priority", request.path), "beyond 32 bits"))?,
        timeout_ms: request.millis("timeout_s")?,
        retries: request.whole("retries", 0, RETRIES_MAX)?.unwrap_or(0),
        backoff_ms: request.millis("backoff_s")?.unwrap_or(usual.backoff_ms),
        backoff_max_ms: request
            .millis("backoff_max_s")?
            .unwrap_or(usual.backoff_max_ms),
        idempotent: request.flag("idempotent")?,
        key_at_once: concurrency.unwrap_or(usual.key_at_once),
        memory_bytes: request.count("memory_bytes")?,
        ahead: request.whole("ahead", 0, AHEAD_MAX)?.unwrap_or(0),
        cpu_milli: request
            .thousandths("cpu", u64::from(CPU_MAX) * 1_000)?
            .map_or(usual.cpu_milli, |milli| {
                u32::try_from(milli).unwrap_or(u32::MAX)
            }),
        ..usual
    })
}

/// An object of the manifest, with its path.
struct Part<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Part<'a> {
    fn of(value: &'a Value, path: &str) -> Result<Self> {
        let map = value
            .as_object()
            .ok_or_else(|| wrong(path, "an object was expected"))?;
        Ok(Self {
            path: path.to_owned(),
            map,
        })
    }

    /// What stands there; `None` for null, too.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, expected: &str) -> Error {
        let dot = if self.path.is_empty() { "" } else { "." };
        let value = self
            .map
            .get(name)
            .map_or("nothing".into(), Value::to_string);
        wrong(
            &format!("{}{dot}{name}", self.path),
            &format!("expected {expected}, got {value}"),
        )
    }

    fn optional_text(&self, name: &str) -> Result<Option<&'a str>> {
        let value = self.get(name);
        let text = value.map(|value| value.as_str().ok_or_else(|| self.wrong(name, "text")));
        text.transpose()
    }

    fn text(&self, name: &str) -> Result<&'a str> {
        self.optional_text(name)?
            .ok_or_else(|| self.wrong(name, "text"))
    }

    fn list(&self, name: &str) -> Result<&'a [Value]> {
        let list = self.get(name).and_then(Value::as_array);
        list.map(Vec::as_slice)
            .ok_or_else(|| self.wrong(name, "a list"))
    }

    /// False where it is not said.
    fn flag(&self, name: &str) -> Result<bool> {
        let flag = self.get(name).map(|value| {
            value
                .as_bool()
                .ok_or_else(|| self.wrong(name, "true or false"))
        });
        Ok(flag.transpose()?.unwrap_or(false))
    }

    fn count(&self, name: &str) -> Result<Option<u64>> {
        let count = self
            .get(name)
            .map(|value| value.as_u64().ok_or_else(|| self.wrong(name, "a count")));
        count.transpose()
    }

    fn whole(&self, name: &str, least: u32, most: u32) -> Result<Option<u32>> {
        let Some(count) = self.count(name)? else {
            return Ok(None);
        };
        let count = u32::try_from(count)
            .ok()
            .filter(|count| (least..=most).contains(count));
        count
            .map(Some)
            .ok_or_else(|| self.wrong(name, &format!("an integer from {least} to {most}")))
    }

    fn millis(&self, name: &str) -> Result<Option<u64>> {
        self.thousandths(name, OPTION_TIME_MS_MAX)
    }

    /// A number as thousandths, rounded up.
    fn thousandths(&self, name: &str, most: u64) -> Result<Option<u64>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let milli = value.as_f64().unwrap_or(-1.0) * 1e3;
        #[allow(clippy::cast_precision_loss)] // far below 2^53
        if !(0.0..=most as f64).contains(&milli) {
            return Err(self.wrong(name, &format!("a number from 0 to {}", most / 1_000)));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // its range is checked
        Ok(Some(milli.ceil() as u64))
    }
}

fn wrong(path: &str, why: &str) -> Error {
    let path = if path.is_empty() {
        String::new()
    } else {
        format!(" at {path}")
    };
    Error::Config(format!("the application's manifest{path}: {why}"))
}
