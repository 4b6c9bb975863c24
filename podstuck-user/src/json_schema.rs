//! The schema of the output of `--output json`, generated from the serialised types.

use schemars::{Schema, SchemaGenerator};

use crate::{commands::check::Check, live::lister::End};
use podstuck_show::{compare::Comparison, present::json};

/// The schema of each line, in the order in which the documentation lists them.
pub fn schemas(generator: &mut SchemaGenerator) -> Vec<Schema> {
    let mut all = json::schemas(generator);
    all.extend([
        json::schema_of::<End<'_>>("list", generator),
        json::schema_of::<Check>("check", generator),
        json::schema_of::<Comparison>("comparison", generator),
    ]);
    all
}
