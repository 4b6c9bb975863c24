//! Lossless serialization of file names in recordings, also of those that are not UTF-8.
//!
//! For `#[serde(with = "raw_path")]`: a string if the name is UTF-8, else `{"base64": "..."}`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A string, or bytes that are not UTF-8.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Raw {
    Text(String),
    Bytes { base64: String },
}

impl Raw {
    fn of(name: &OsStr) -> Self {
        match name.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes { base64: BASE64_STANDARD.encode(name.as_bytes()) },
        }
    }

    fn name<T: From<OsString>>(self) -> Result<T, base64::DecodeError> {
        Ok(T::from(match self {
            Self::Text(text) => text.into(),
            Self::Bytes { base64 } => OsString::from_vec(BASE64_STANDARD.decode(base64)?),
        }))
    }
}

/// Serializes a name.
///
/// # Errors
/// Returns the serializer's errors.
pub fn serialize<S: Serializer>(
    name: &impl AsRef<OsStr>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Raw::of(name.as_ref()).serialize(serializer)
}

/// Deserializes a name.
///
/// # Errors
/// Fails for invalid base64.
pub fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Raw::deserialize(deserializer)?.name().map_err(D::Error::custom)
}

/// For an optional name.
pub mod option {
    use super::{Deserialize, Deserializer, OsStr, OsString, Raw, Serialize, Serializer};
    use serde::de::Error as _;

    /// Serializes a name, or null.
    ///
    /// # Errors
    /// Returns the serializer's errors.
    pub fn serialize<S: Serializer>(
        name: &Option<impl AsRef<OsStr>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        name.as_ref().map(|name| Raw::of(name.as_ref())).serialize(serializer)
    }

    /// Deserializes a name, or null.
    ///
    /// # Errors
    /// Fails for invalid base64.
    pub fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let raw = Option::<Raw>::deserialize(deserializer)?;
        raw.map(Raw::name).transpose().map_err(D::Error::custom)
    }
}

/// For a list of names.
pub mod list {
    use super::{Deserialize, Deserializer, OsStr, OsString, Raw, Serializer};
    use serde::de::Error as _;

    /// Serializes names.
    ///
    /// # Errors
    /// Returns the serializer's errors.
    pub fn serialize<S: Serializer>(
        names: &[impl AsRef<OsStr>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(names.iter().map(|name| Raw::of(name.as_ref())))
    }

    /// Deserializes names.
    ///
    /// # Errors
    /// Fails for invalid base64.
    pub fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        let raw = Vec::<Raw>::deserialize(deserializer)?;
        raw.into_iter().map(Raw::name).collect::<Result<_, _>>().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::raw_path;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Named {
        #[serde(with = "raw_path")]
        path: PathBuf,
        #[serde(with = "raw_path::option")]
        other: Option<OsString>,
        #[serde(with = "raw_path::list")]
        more: Vec<PathBuf>,
    }

    #[test]
    fn every_name_comes_back() {
        for bytes in [b"/a b".as_slice(), b"/\xff\n", b"", br#"{"base64":"eA=="}"#] {
            let name = OsStr::from_bytes(bytes);
            let named =
                Named { path: name.into(), other: Some(name.into()), more: vec![name.into()] };
            let text = serde_json::to_string(&named).unwrap();
            assert_eq!(serde_json::from_str::<Named>(&text).unwrap(), named, "{text}");
        }
        let wrong = r#"{"path":{"base64":"!"},"other":null,"more":[]}"#;
        assert!(serde_json::from_str::<Named>(wrong).is_err());
    }
}
