//! Manual pages, which the program generates itself.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use podstuck_process as process;

/// A page and its file name.
pub(super) struct Page {
    pub(super) name: String,
    pub(super) text: String,
}

/// The page of the program, and one for each of its commands.
pub(super) fn of(program: &Path) -> Result<Vec<Page>> {
    let ask = |args: &[&str]| process::output(Command::new(program).arg("man").args(args));
    let mut pages = vec![Page { name: "podstuck.8".into(), text: ask(&[])? }];
    for command in ask(&["--names"])?.lines() {
        pages.push(Page { name: format!("podstuck-{command}.8"), text: ask(&[command])? });
    }
    Ok(pages)
}
