//! Any bytes as a call, a reply, options or arguments: they are read or refused, and nothing else happens.
#![no_main]

use std::sync::{Arc, LazyLock};

use forebay_executor::manifest::Manifest;
use forebay_executor::message::{Call, Reader, WorkerReply, options, progressed};
use forebay_executor::request::Options;
use libfuzzer_sys::fuzz_target;

static MANIFEST: LazyLock<Manifest> = LazyLock::new(|| {
    let text = br##"{"schema":1,"app":"a","target":"a.py","code":"0","sources":[],"requests":[{"name":"f","parameters":[
        {"name":"x","required":true,"schema":{"$ref":"#/definitions/Tree"}}]}],"definitions":{"Tree":{"anyOf":[
        {"type":"object","additionalProperties":{"$ref":"#/definitions/Tree"}},
        {"type":"array","items":{"$ref":"#/definitions/Tree"}},
        {"type":"string","pattern":"^a"},{"type":"number","minimum":0},{"type":"null"}]}}}"##;
    Manifest::parse(text).expect("a manifest")
});

fuzz_target!(|bytes: &[u8]| {
    let defaults = Arc::new(Options::default());
    if let Ok(Call::Submit(submit) | Call::Run(submit)) = Call::read(bytes, None) {
        let _ = options(submit.options, &defaults, 0);
    }
    let _ = options(bytes, &defaults, 0);
    let _ = (WorkerReply::read(bytes, None), progressed(bytes));
    let _ = Reader::new(bytes).skip();
    let _ = MANIFEST.check("f", bytes);
    let _ = Manifest::parse(bytes);
});
