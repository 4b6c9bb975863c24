//! Label selectors, as the API server matches them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A label selector. The empty one matches all objects.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl Selector {
    /// Whether it matches these labels; `None` for an unknown operator.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> Option<bool> {
        let equal = self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        let mut all = equal;
        for Requirement { key, operator, values } in &self.match_expressions {
            let value = labels.get(key);
            let is_among = value.is_some_and(|value| values.contains(value));
            all &= match operator.as_str() {
                "In" => is_among,
                "NotIn" => !is_among,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => return None,
            };
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn matches(selector: Value, labels: Value) -> Option<bool> {
        let selector: Selector = serde_json::from_value(selector).unwrap();
        selector.matches(&serde_json::from_value(labels).unwrap())
    }

    #[test]
    fn labels_are_matched_as_the_api_server_does() {
        let expression = |operator: &str| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": ["1"]}]});
        for (operator, with_one, with_two, without) in [
            ("In", true, false, false),
            ("NotIn", false, true, true),
            ("Exists", true, true, false),
            ("DoesNotExist", false, false, true),
        ] {
            let of = |labels| matches(expression(operator), labels);
            let all = [of(json!({"a": "1"})), of(json!({"a": "2"})), of(json!({}))];
            assert_eq!(all, [Some(with_one), Some(with_two), Some(without)], "{operator}");
        }
        assert_eq!(matches(json!({}), json!({"a": "1"})), Some(true));
        assert_eq!(matches(json!({"matchLabels": {"a": "1"}}), json!({"a": "2"})), Some(false));
        assert_eq!(matches(expression("Gt"), json!({"a": "2"})), None);
    }
}
