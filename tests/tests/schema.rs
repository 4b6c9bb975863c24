//! The published JSON schema is the written types' own. `podstuck_tests` compares each line that a test reads.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{env, fs};

use podstuck_testing::Schema;
use podstuck_tests::{run, schema};

/// `PODSTUCK_BLESS=1` writes it there.
const PUBLISHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/podstuck-v1.schema.json");

#[test]
fn the_published_schema_is_that_of_the_types() {
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if env::var_os("PODSTUCK_BLESS").is_some() {
        fs::write(PUBLISHED, &text).unwrap();
    }
    let published = fs::read_to_string(PUBLISHED).unwrap_or_default();
    assert!(published == text, "docs/podstuck-v1.schema.json; PODSTUCK_BLESS=1 writes it");
    jsonschema::meta::validate(&schema()).unwrap();
}

#[test]
fn what_no_run_writes_is_as_the_schema_says() {
    let strict = Schema::new(schema());
    for words in [["explain", "--output=json"], ["doctor", "--output=json"]] {
        let out = String::from_utf8(run(&words).stdout).unwrap();
        let lines = out.lines().map(|line| serde_json::from_str(line).unwrap());
        assert!(lines.inspect(|line| strict.check(line)).count() > 5, "{out}");
    }
}
