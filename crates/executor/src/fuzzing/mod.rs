//! Any bytes as what a client, a worker or a template says: one entry for each decoder that they reach.
//!
//! Built for tests and with the feature `fuzzing`; see the module of this name in `forebay-transport`.

#[cfg(test)]
mod seeds;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use crate::manifest::Manifest;
use crate::message::{Call, Reader, WorkerReply, filter, is_record, options, progressed};
use crate::request::Options;
use crate::usage::Usage;
use forebay_transport::Totals;

pub use crate::side::fuzzing::side;

static DEFAULTS: LazyLock<Arc<Options>> = LazyLock::new(Arc::default);

/// An application whose one request takes a tree.
pub const MANIFEST: &str = r##"{"schema":1,"app":"a","target":"a.py","code":"0","sources":[],"requests":[{"name":"f",
"parameters":[{"name":"x","required":true,"schema":{"$ref":"#/definitions/Tree"}}]}],"definitions":{"Tree":{"anyOf":[
{"type":"object","additionalProperties":{"$ref":"#/definitions/Tree"}},
{"type":"array","items":{"$ref":"#/definitions/Tree"}},
{"type":"string","pattern":"^a"},{"type":"number","minimum":0},{"type":"null"}]}}}"##;

static TREES: LazyLock<Manifest> =
    LazyLock::new(|| Manifest::parse(MANIFEST.as_bytes()).expect("a manifest"));

/// A call of a client or an answer of a worker, in msgpack: read or refused, and nothing read lies beyond it.
///
/// # Panics
/// Where something does.
pub fn requests(input: &[u8]) -> bool {
    let call = Call::read(input, None);
    if let Ok(Call::Submit(submit) | Call::Run(submit)) = &call {
        let _ = options(submit.options, &DEFAULTS, 0);
        assert!(submit.arguments.len() <= input.len());
    }
    if let Ok(Call::Feed { filter: wanted, .. }) = &call {
        let _ = filter(wanted);
    }
    let _ = options(input, &DEFAULTS, 0);
    let _ = filter(input);
    let _ = Reader::new(input).skip();
    let reply = WorkerReply::read(input, None).is_err();
    let record = is_record(input);
    assert!(!record || progressed(input, None).is_some());
    call.is_err() && reply && !record
}

/// Arguments of a request, held against its schema.
pub fn arguments(input: &[u8]) -> bool {
    TREES.check("f", input).is_err()
}

/// What a template says that its application has.
pub fn manifest(input: &[u8]) -> bool {
    Manifest::parse(input).is_err()
}

/// The figures that a worker reports.
///
/// # Panics
/// Where a sum is no number any more.
pub fn usage(input: &[u8]) -> bool {
    let mut sums = Usage::default();
    let refused = sums.take(0, input).is_err();
    let again = sums.take(1, input).is_err();
    assert_eq!(refused, again);
    sums.end(0);
    let exposition = sums.expose(&Totals::default());
    let samples = exposition.counters.iter().chain(&exposition.gauges);
    assert!(samples.into_iter().all(|sample| sample.value >= 0.0));
    assert!(exposition.histograms.iter().all(|one| one.sum >= 0.0));
    refused
}
