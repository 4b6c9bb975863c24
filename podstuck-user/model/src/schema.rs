//! JSON schemas of types with a hand-written serialization: texts, numbers and paths.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{
    call::Call,
    cause::{CauseId, Proof},
    evidence::{RuledOut, Source},
    path::JsonPath,
};

/// Types that serialize as a string.
macro_rules! texts {
    ($($type:ty: $about:literal;)*) => {$(
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "description": $about})
            }
        }
    )*};
}

texts! {
    CauseId: "The id of a cause, as `podstuck explain` lists them.";
    Proof: "A fact that the cause needs; behind it, where podstuck cannot see it.";
    Source: "Where a fact was read: `syscall probe`, a file, a log, the API server, ...";
    RuledOut: "`ID: FACT`: a cause, and what speaks against it.";
}

impl JsonSchema for Call {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Call".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"enum": Self::ALL.map(Self::name)})
    }
}

impl JsonSchema for JsonPath {
    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Harmless to show: other characters are escaped."},
                "path_bytes": {"type": "string", "description": "The bytes in base64, where the text is escaped."},
            },
            "required": ["path"],
        })
    }
}
