//! Valid messages of clients, workers, templates: the seeds of mutations.

use crate::id::RequestId;
use crate::message::Writer;
use crate::usage::HISTOGRAM_CELLS;

fn call(method: &str, count: usize, fill: &dyn Fn(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.array(3).text(method).array(count);
    fill(&mut writer);
    writer.nil();
    writer.into_bytes()
}

pub fn requests() -> Vec<Vec<u8>> {
    let id = RequestId(7).to_string();
    let submit = |writer: &mut Writer| {
        writer.text("f").binary(b"\x81\xa1x\x05").map(5);
        writer.text("after").array(1).text(&id);
        writer.text("timeout_s").float(0.5);
        writer.text("parent").text(&id);
        let span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        writer.text("traceparent").text(span);
        writer.text("key").text("k").unsigned(9);
    };
    let logs = |writer: &mut Writer| {
        writer.text(&id).unsigned(4).boolean(true);
    };
    let list = |writer: &mut Writer| {
        writer.map(1).text("status").text("queued");
    };
    let feed = |writer: &mut Writer| {
        writer.map(2).text("ids").array(1).text(&id);
        writer.text("events").array(1).text("ended");
        writer.unsigned(1 << 60);
    };
    let items = |writer: &mut Writer| {
        writer.text(&id).unsigned(2).unsigned(300).boolean(true);
    };
    let hello = |writer: &mut Writer| {
        writer.unsigned(2);
    };
    vec![
        call("hello", 1, &hello),
        call("submit", 4, &submit),
        call("run", 4, &submit),
        call("logs", 3, &logs),
        call("list", 1, &list),
        b"\x92\x00\xc4\x01\x80".to_vec(),
        b"\x92\x01\x81\xa7message\xa1x".to_vec(),
        b"\x82\xa4done\x03\xa5total\x0a".to_vec(),
        call("feed", 2, &feed),
        call("items", 4, &items),
    ]
}

pub fn arguments() -> Vec<Vec<u8>> {
    let mut writer = Writer::default();
    writer.map(1).text("x").map(3);
    writer.text("a").array(3).text("abc").float(2.5).nil();
    writer.text("b").unsigned(7);
    writer.text("c").map(1).text("d").array(0);
    vec![writer.into_bytes()]
}

pub fn manifest() -> Vec<Vec<u8>> {
    vec![super::MANIFEST.as_bytes().to_vec()]
}

pub fn side() -> Vec<Vec<u8>> {
    let record = |kind: u8, payload: &[u8]| {
        let (id, attempt) = (7_u64.to_le_bytes(), 2_u32.to_le_bytes());
        [&[kind], &id[..], &attempt, payload].concat()
    };
    vec![
        record(1, b"output\n"),
        record(2, b"\x82\xa4done\x03\xa5total\x0a"),
        record(3, "a warning \u{e9}".as_bytes()),
        record(4, b""),
        record(5, &usage()[0]),
        record(6, b""),
    ]
}

pub fn usage() -> Vec<Vec<u8>> {
    let mut writer = Writer::default();
    writer.array(3);
    writer.array(3).text("forebay_tensor_slots").array(1);
    writer.text("used").unsigned(3);
    writer.array(3).text("forebay_blockio_operations_total");
    writer
        .array(2)
        .text("read")
        .text("io_uring")
        .unsigned(70_000);
    writer
        .array(3)
        .text("forebay_pool_acquire_seconds")
        .array(1);
    writer.text("server").array(HISTOGRAM_CELLS);
    for count in 1..HISTOGRAM_CELLS {
        writer.unsigned(count as u64);
    }
    writer.float(0.5);
    vec![writer.into_bytes()]
}
