//! Renders a remedy: the command or the advice, its risk, what it affects, and how to check that it worked.

use super::nouns::text;
use crate::present::style::{Ink, Style};
use podstuck_model::remedy::{Place, Remedy};

/// Indentation of a command.
pub(crate) const COMMAND: &str = "        ";

/// What a command does; an older podstuck has not recorded that.
pub(crate) fn does(remedy: &Remedy) -> String {
    text(remedy.does.as_deref().unwrap_or("run"))
}

pub(super) fn way_out(remedy: &Remedy, style: Style) -> String {
    let mut out = String::new();
    // A command is not wrapped, and only spaces precede it: it is to be copied.
    let copied = |command: &str| style.paint(Ink::Command, &text(command));
    if let Some(command) = &remedy.command {
        out.push_str(&style.wrap("    - ", "      ", &does(remedy)));
        out.push_str(&format!("{COMMAND}{}\n", copied(command)));
    }
    if let Some(advice) = &remedy.advice {
        out.push_str(&style.wrap("    - ", "      ", &text(advice)));
    }
    let mut say = |label: &str, words: &str| {
        out.push_str(&style.wrap(&format!("      {label}: "), "      ", &text(words)));
    };
    if remedy.place == Some(Place::Kubectl) {
        say("where", "a machine with kubectl");
    }
    if let Some(guard) = &remedy.guard {
        say("acts only if", guard);
    }
    if !remedy.risk.is_empty() && (remedy.advice.is_none() || remedy.risk != "none") {
        say("risk", &remedy.risk);
    }
    if !remedy.affects.is_empty() {
        say("also hit", &remedy.affects.join(", "));
    }
    if let Some(verify) = &remedy.verify {
        out.push_str(&format!("      it worked if: {}\n", copied(verify)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_shown_and_no_empty_one() {
        let mut remedy = Remedy::command("look at the pod x", "kubectl get pod x", "low");
        let style = Style::PLAIN;
        let short = "    - look at the pod x\n        kubectl get pod x\n      where: a machine with kubectl\n      risk: low\n";
        assert_eq!(way_out(&remedy, style), short);
        remedy.guard = Some("mount 9 is there".into());
        remedy.verify = Some("! grep 9".into());
        remedy.affects("pod a").affects("\u{1b}b");
        let long = way_out(&remedy, style);
        for line in
            ["acts only if: mount 9 is there", "also hit: pod a, \\x1bb", "it worked if: ! grep 9"]
        {
            assert!(long.contains(line), "{long}");
        }
        let advice = way_out(&Remedy::advice("ask the owner", "none"), style);
        assert_eq!(advice, "    - ask the owner\n");
    }
}
