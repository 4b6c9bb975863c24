//! The commands in the documents: each is one that the tool understands.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use clap::{Command, CommandFactory, Parser};
use podstuck::cli::Cli;

const DOCUMENTS: [(&str, &str); 13] = [
    ("README.md", include_str!("../../README.md")),
    ("CONTRIBUTING.md", include_str!("../../CONTRIBUTING.md")),
    ("docs/exports.md", include_str!("../../docs/exports.md")),
    ("docs/in-a-pod.md", include_str!("../../docs/in-a-pod.md")),
    ("docs/install.md", include_str!("../../docs/install.md")),
    ("docs/labs.md", include_str!("../../docs/labs.md")),
    ("docs/limits.md", include_str!("../../docs/limits.md")),
    ("docs/on-a-node.md", include_str!("../../docs/on-a-node.md")),
    ("docs/overhead.md", include_str!("../../docs/overhead.md")),
    ("docs/report.md", include_str!("../../docs/report.md")),
    ("docs/requirements.md", include_str!("../../docs/requirements.md")),
    ("docs/symptoms.md", include_str!("../../docs/symptoms.md")),
    ("docs/tutorial.md", include_str!("../../docs/tutorial.md")),
];

/// Commands in blocks that show a console: behind the prompt, and before a comment.
fn commands(text: &str) -> impl Iterator<Item = &str> {
    let mut in_console = false;
    text.lines().filter_map(move |line| {
        if line.starts_with("```") {
            in_console = line == "```console";
            return None;
        }
        let typed = line.strip_prefix("# ").or_else(|| line.strip_prefix("$ "))?;
        let typed = typed.split("  #").next()?.split(" | ").last()?.trim();
        (in_console && typed.starts_with("podstuck")).then_some(typed)
    })
}

fn check_help(mut command: Command) {
    let help = command.render_long_help().to_string();
    assert_eq!(podstuck_testing::own_words(&help), [""; 0], "{}", command.get_name());
    command.get_subcommands().cloned().for_each(check_help);
}

#[test]
fn no_help_uses_words_of_our_own() {
    check_help(Cli::command());
}

#[test]
fn every_command_of_the_documents_is_one() {
    let mut seen = 0;
    for (name, text) in DOCUMENTS {
        for typed in commands(text) {
            let words = typed.split_whitespace();
            // What stands for a value of the reader's.
            let words = words.map(|word| if word == "MAJ:MIN" { "8:1" } else { word });
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{name}: `{typed}`: {}", parsed.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen} commands were found: are they still marked as such?");
}

/// Inline, as in `podstuck lab immutable-attribute`, too.
#[test]
fn every_command_in_a_sentence_has_a_subcommand_that_there_is() {
    let known = <Cli as clap::CommandFactory>::command();
    let known: Vec<&str> = known.get_subcommands().map(clap::Command::get_name).collect();
    for (name, text) in DOCUMENTS {
        for typed in text.split('`').filter_map(|part| part.strip_prefix("podstuck ")) {
            let word = typed.split_whitespace().next().unwrap_or_default();
            if word.chars().all(|c| c.is_ascii_lowercase()) && !word.is_empty() {
                assert!(known.contains(&word), "{name}: podstuck {typed}");
            }
        }
    }
}
