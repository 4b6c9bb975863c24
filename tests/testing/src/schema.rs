//! Documents against a JSON schema, which is taken to name all fields.

use jsonschema::Validator;
use serde_json::{Value, json};

/// A schema for documents of several types.
pub struct Schema(Vec<(String, Validator)>);

impl Schema {
    /// Of one whose `oneOf` has a schema for each type.
    pub fn new(schema: Value) -> Self {
        let schema = closed(schema);
        let each = schema["oneOf"].as_array().unwrap().iter().map(|one| {
            let mut one = one.clone();
            one["$defs"] = schema["$defs"].clone();
            let kind = one["properties"]["type"]["const"].as_str().unwrap().to_owned();
            (kind, jsonschema::validator_for(&one).unwrap())
        });
        Self(each.collect())
    }

    /// Fails where the document is not as the schema says.
    pub fn check(&self, document: &Value) {
        let kind = document["type"].as_str().unwrap_or_default();
        let known = self.0.iter().find(|(name, _)| name == kind);
        let (_, validator) = known.unwrap_or_else(|| panic!("no schema is of {document:#}"));
        let wrong = validator.iter_errors(document);
        let wrong: Vec<String> =
            wrong.map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert_eq!(wrong, [""; 0], "{document:#}");
    }
}

/// The same schema, that takes no field which it does not name.
fn closed(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(object) => {
            object.values_mut().for_each(|value| *value = closed(value.take()));
            if object.contains_key("properties") {
                object.insert("unevaluatedProperties".into(), json!(false));
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|value| *value = closed(value.take())),
        _ => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "more")]
    fn a_field_without_a_name_is_found() {
        let schema = json!({"$defs": {}, "oneOf": [{"properties": {"type": {"const": "a"}}}]});
        Schema::new(schema).check(&json!({"type": "a", "more": 1}));
    }
}
