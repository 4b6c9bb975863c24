//! What programs read of a release.

use std::fs;

use podstuck_testing::Schema;
use podstuck_tests::{requires, schema};
use serde_json::{Value, json};

use super::made::{VERSION, artefact, made};

#[test]
fn the_catalogue_is_data_by_the_schema_beside_it() {
    requires!(made());
    let read = |name| -> Value {
        serde_json::from_str(&fs::read_to_string(artefact(name)).unwrap()).unwrap()
    };
    assert_eq!(read("podstuck-v1.schema.json"), schema());
    let (catalogue, schema) = (read("causes.json"), Schema::new(schema()));
    assert_eq!(catalogue["version"], VERSION);
    let causes = catalogue["causes"].as_array().unwrap();
    let lock = causes.iter().find(|it| it["id"] == "kernel-lock-held").unwrap();
    assert_eq!(lock["versions"][0]["since"], "6.16");
    assert!(causes.len() > 50 && causes.iter().any(|it| it["id"] == "immutable-attribute"));
    for cause in causes {
        let mut line = cause.clone();
        for (field, value) in [("schema", "podstuck/v1"), ("type", "cause"), ("time", "")] {
            line[field] = json!(value);
        }
        schema.check(&line);
    }
}
