//! The schema of what the tool writes for programs: each line that a test reads is compared with it.

use std::sync::OnceLock;

use podstuck_testing::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// That of any document of `podstuck/v1`.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut any = podstuck::schemas(&mut generator);
    any.push(podstuck_cluster::present::schema(&mut generator));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "podstuck/v1",
        "description": "A line of `podstuck --output json`, or the document of `kubectl podstuck -o json`. Fields may be added.",
        "oneOf": any,
        "$defs": generator.take_definitions(true),
    })
}

/// A line of JSON, which is as the schema says if it is of that schema.
pub(crate) fn read(line: impl AsRef<[u8]>) -> Value {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let value: Value = serde_json::from_slice(line.as_ref()).expect("a line of JSON");
    if value["schema"] == "podstuck/v1" {
        SCHEMA.get_or_init(|| Schema::new(schema())).check(&value);
    }
    value
}
