//! `podstuck man`: the manual pages, from the definitions of the command line.

use anyhow::{Context, anyhow};
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::{self, Cli};
use crate::{
    outcome::{Exit, Failure},
    standard_output,
};

/// Its commands need root: the section of administration commands.
const SECTION: &str = "8";

/// Runs the command: 0, or 2 for an unknown command.
///
/// # Errors
/// [`Failure::Usage`] for an unknown command.
pub fn run(options: &cli::Man) -> Result<Exit, Failure> {
    let out = if options.names {
        names().into_bytes()
    } else {
        page(options.command.as_deref()).map_err(Failure::Usage)?
    };
    standard_output::print(out);
    Ok(Exit::Clean)
}

/// The whole command line, with the full names of its commands.
fn root() -> Command {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    root
}

fn names() -> String {
    let root = root();
    let seen = root.get_subcommands().filter(|command| !command.is_hide_set());
    seen.map(|command| format!("{}\n", command.get_name())).collect()
}

/// A page in roff: of the program, or of one of its commands.
fn page(name: Option<&str>) -> anyhow::Result<Vec<u8>> {
    let root = root();
    let command = match name {
        None => &root,
        Some(name) => root
            .find_subcommand(name)
            .filter(|command| !command.is_hide_set())
            .ok_or_else(|| anyhow!("no command {name:?}: `podstuck man --names` lists them"))?,
    };
    let mut page = Vec::new();
    let man = Man::new(command.clone()).section(SECTION).manual("podstuck");
    let version = root.get_version().unwrap_or_default();
    man.source(format!("podstuck {version}")).render(&mut page).context("rendering the page")?;
    Ok(page)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command_and_none_for_what_is_hidden() {
        for name in names().lines() {
            let page = String::from_utf8(page(Some(name)).unwrap()).unwrap();
            assert!(page.contains(&format!("podstuck\\-{name} \\- ")), "{name}: {page}");
        }
        let whole = String::from_utf8(page(None).unwrap()).unwrap();
        assert!(whole.contains(".SH SUBCOMMANDS") && whole.contains("podstuck\\-diagnose(8)"));
        for name in ["look", "man", "nothing"] {
            assert!(page(Some(name)).is_err(), "{name}");
            assert!(!whole.contains(&format!("podstuck\\-{name}")), "{name}");
        }
    }
}
