//! JSON objects as Go's loggers write them, with the order of their fields kept.

use std::{borrow::Cow, fmt};

use jiff::{SignedDuration, Timestamp, Unit};
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::go_text::quote;

/// Most fields of an object that are read.
const FIELDS: usize = 64;

/// A value. Deep nesting is an error of the parser (serde_json's recursion limit).
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Text(String),
    /// A number, a boolean, or null.
    Bare(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    /// Parses a line that is one object.
    pub(super) fn object(line: &str) -> Option<Self> {
        let value = line.starts_with('{').then(|| serde_json::from_str(line).ok())??;
        matches!(value, Self::Object(_)).then_some(value)
    }

    /// The first field of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.fields().iter().find(|field| field.0 == name).map(|field| &field.1)
    }

    /// The text of a field, if it is one.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn fields(&self) -> &[(String, Self)] {
        match self {
            Self::Object(fields) => fields,
            _ => &[],
        }
    }

    /// The value as a time: a text, or a number of seconds or milliseconds since the epoch.
    pub(super) fn time(&self) -> Option<Timestamp> {
        /// From here on a number is milliseconds: as seconds it is the year 5138.
        const MILLISECONDS: f64 = 1e11;
        match self {
            Self::Text(text) => text.parse().ok(),
            Self::Bare(number) => {
                let number: f64 = number.parse().ok()?;
                let seconds = if number >= MILLISECONDS { number / 1000.0 } else { number };
                let since = SignedDuration::try_from_secs_f64(seconds).ok()?;
                Timestamp::UNIX_EPOCH.checked_add(since).ok()?.round(Unit::Microsecond).ok()
            }
            _ => None,
        }
    }

    /// The value in klog's text format.
    pub(super) fn klog(&self) -> String {
        if let Some(reference) = self.reference() {
            return quote(&reference);
        }
        match self {
            Self::Text(text) => quote(text),
            Self::Bare(text) => text.clone(),
            Self::List(all) => {
                let all: Vec<String> = all.iter().map(Self::klog).collect();
                format!("[{}]", all.join(","))
            }
            Self::Object(fields) => {
                let field =
                    |(name, value): &(String, Self)| format!("{}:{}", quote(name), value.klog());
                let all: Vec<String> = fields.iter().map(field).collect();
                format!("{{{}}}", all.join(","))
            }
        }
    }

    /// A reference by namespace and name (`klog.ObjectRef`).
    fn reference(&self) -> Option<Cow<'_, str>> {
        let is_part = |field: &(String, Self)| matches!(field.0.as_str(), "name" | "namespace");
        let name = self.text("name").filter(|_| self.fields().iter().all(is_part))?;
        Some(match self.text("namespace") {
            Some(namespace) => format!("{namespace}/{name}").into(),
            None => name.into(),
        })
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bare(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Bare(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Bare(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Bare(value.to_string()))
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Bare("null".into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = all.next_element()? {
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Json, A::Error> {
        let mut fields: Vec<(String, Json)> = Vec::new();
        while let Some(name) = all.next_key()? {
            if fields.len() < FIELDS {
                fields.push((name, all.next_value()?));
            } else {
                all.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Json::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_klog_does() {
        let of = |text: &str| serde_json::from_str::<Json>(text).unwrap().klog();
        let table = [
            (r#"{"name":"web","namespace":"shop"}"#, r#""shop/web""#),
            (r#"{"name":"node-1"}"#, r#""node-1""#),
            (
                r#"[{"name":"web","namespace":"shop"},{"name":"b","namespace":"c"}]"#,
                r#"["shop/web","c/b"]"#,
            ),
            (
                r#"{"ID":"u","Type":"ContainerDied","Data":"d"}"#,
                r#"{"ID":"u","Type":"ContainerDied","Data":"d"}"#,
            ),
            (r#""a \"b\"\n""#, r#""a \"b\"\n""#),
            ("30", "30"),
            ("true", "true"),
            ("null", "null"),
        ];
        for (json, text) in table {
            assert_eq!(of(json), text, "{json}");
        }
    }

    #[test]
    fn a_time_is_in_seconds_or_in_milliseconds() {
        let of = |text: &str| {
            serde_json::from_str::<Json>(text).unwrap().time().map(|at| at.to_string())
        };
        assert_eq!(of("1655581336244").unwrap(), "2022-06-18T19:42:16.244Z");
        assert_eq!(of("1655581336.5").unwrap(), "2022-06-18T19:42:16.5Z");
        assert_eq!(of("\"2022-06-18T19:42:16.244Z\"").unwrap(), "2022-06-18T19:42:16.244Z");
        for other in ["1e300", "-1e300", "\"now\"", "[]", "null"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn other_values_and_endless_objects_are_rejected() {
        for line in ["", "[]", "7", "{", "{\"a\":", &"{\"a\":".repeat(9999)] {
            assert_eq!(Json::object(line), None);
        }
        let many: Vec<String> = (0..FIELDS * 2).map(|field| format!("\"a{field}\":1")).collect();
        let many = Json::object(&format!("{{{}}}", many.join(","))).unwrap();
        assert_eq!(many.fields().len(), FIELDS);
    }
}
