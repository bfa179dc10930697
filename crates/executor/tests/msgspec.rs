//! The check against msgspec itself: its schemas, its bytes, and what it decodes (`msgspec/cases.py` wrote them).

use forebay_executor::manifest::Manifest;
use serde_json::Value;

/// What msgspec refuses and a schema does not say: the form of dates, times and numbers that are text, and that a
/// time with its zone is no text where the schema has no format (a datetime without a `tz` has none either).
const OPEN: [&str; 7] = [
    "datetime",
    "date'",
    "time'",
    "timedelta",
    "UUID",
    "Decimal",
    "<class 'str'>",
];

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(pair).collect()
}

#[test]
fn what_msgspec_decodes_passes_and_what_it_refuses_does_not() {
    let told: Value = serde_json::from_str(include_str!("msgspec/cases.json")).expect("json");
    let manifest = Manifest::parse(told["manifest"].to_string().as_bytes()).expect("a manifest");
    let list = |name: &str| told[name].as_array().expect("a list");
    let (mut passed, mut refused) = (0, 0);
    for (number, annotation) in list("annotations").iter().enumerate() {
        let annotation = annotation.as_str().expect("text");
        for (value, hex) in list("values").iter().enumerate() {
            let hex = hex.as_str().expect("text");
            let arguments = [b"\x81\xa1v".as_slice(), &bytes(hex)].concat();
            let checked = manifest.check(&format!("r{number}"), &arguments);
            let fits = told["fits"][number][value] == 1;
            if fits {
                passed += 1;
                assert!(checked.is_ok(), "{annotation}, {hex}: {:?}", checked.err());
            } else if !OPEN.iter().any(|open| annotation.contains(open)) {
                refused += 1;
                assert!(checked.is_err(), "{annotation}, {hex} passes");
            }
        }
    }
    assert!(
        passed > 100 && refused > 1_000,
        "{passed} passed, {refused} refused"
    );
}
