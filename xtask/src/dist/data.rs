//! What programs read: the catalogue of causes, and the schema of what is written for them.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use podstuck_engine::{catalogue, versions::Entry};
use serde_json::json;

use super::Release;

/// It says what a line of the type `cause` has, too.
const SCHEMA: &str = "podstuck-v1.schema.json";

/// Writes both.
pub(super) fn make(release: &Release<'_>) -> Result<[PathBuf; 2]> {
    let causes: Vec<Entry<'_>> = catalogue::all().map(Entry::from).collect();
    let causes = json!({"schema": "podstuck/v1", "version": release.version, "causes": causes});
    let to = release.out.join("causes.json");
    fs::write(&to, format!("{causes:#}\n")).with_context(|| format!("writing {}", to.display()))?;
    let from = release.workspace.root.join("docs").join(SCHEMA);
    let schema = release.out.join(SCHEMA);
    fs::copy(&from, &schema).with_context(|| format!("copying {}", from.display()))?;
    Ok([to, schema])
}
