//! Renders the catalogue's entry of a cause.

use podstuck_engine::{
    catalogue,
    cause::{Cause, TriedWith},
    versions::{self, Versions},
};

use crate::present::style::{Ink, Style};

/// The full entry of a cause.
pub fn explain(cause: &Cause, style: Style) -> String {
    let mut out = format!("{}\n", style.paint(Ink::Command, cause.id.as_str()));
    out.push_str(&style.wrap("  ", "  ", cause.title));
    let mut section = |title: &str, lines: &mut dyn Iterator<Item = String>| {
        let mut lines = lines.peekable();
        if lines.peek().is_some() {
            out.push_str(&format!("  {}\n", style.paint(Ink::Label, title)));
        }
        for line in lines {
            out.push_str(&style.wrap("    - ", "      ", &line));
        }
    };
    section("what happens", &mut [cause.meaning.to_owned()].into_iter());
    section("stage of the deletion", &mut [cause.stage.meaning().to_owned()].into_iter());
    let confirms = cause.confirmed_by.iter().filter(|proof| !proof.is_hidden());
    section("what confirms it", &mut confirms.map(|proof| proof.fact.to_owned()));
    section("what podstuck cannot see", &mut cause.hidden().map(|fact| format!("whether {fact}")));
    section("in a log", &mut cause.log.iter().map(|l| format!("{}: {}", l.component, l.text)));
    section(
        "similar causes, and the fact that holds here but not there",
        &mut cause.look_alikes.iter().map(|other| {
            let title = match catalogue::find(other.cause.as_str()) {
                Some(_) => String::new(),
                None => catalogue::title(other.cause)
                    .map(|title| format!(" ({title}; podstuck does not recognise it)"))
                    .unwrap_or_default(),
            };
            format!("{}{title}: {}", other.cause, other.differs_by)
        }),
    );
    section(
        "remedies",
        &mut cause.ways_out.iter().map(|way| match way.risk {
            "" => way.action.to_owned(),
            risk => format!("{}; risk: {risk}", way.action),
        }),
    );
    section("depends on versions", &mut versions::of(cause.id).map(Versions::words));
    section("seen in the field", &mut cause.field.iter().map(|place| (*place).to_owned()));
    section("tested with", &mut [tried(cause)].into_iter());
    section("in the source of", &mut cause.source.iter().map(|place| (*place).to_owned()));
    out
}

/// All causes, one line each.
pub fn explain_all(style: Style) -> String {
    let widest = catalogue::all().map(|cause| cause.id.as_str().len()).max().unwrap_or(0);
    let mut out = String::new();
    for cause in catalogue::all() {
        let id = format!("{:widest$}", cause.id);
        let first = format!("{}  ", style.paint(Ink::Command, &id));
        let rest = " ".repeat(widest + 2);
        // The escape sequences of the colour would count as columns.
        out.push_str(&style.wrap(&rest, &rest, cause.title).replacen(&rest, &first, 1));
    }
    out
}

fn tried(cause: &Cause) -> String {
    if cause.tried.is_empty() {
        return "nothing real, only constructed events".into();
    }
    cause.tried.iter().map(|tried: &TriedWith| tried.words()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_rendered_in_full() {
        let cause = catalogue::find("cgroup-v1-frozen").unwrap();
        let text = explain(cause, Style { width: 80, ..Style::PLAIN });
        for part in [
            "cgroup-v1-frozen\n",
            "freezer.state of the group is FROZEN",
            "containerd: failed to kill",
            "- dstate-process: the group is frozen",
            "- thaw the cgroup; risk: processes that were paused",
            "- a lab, a real kubelet, a recording of a real node\n",
            "legacy_freezer.c",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn the_limits_of_a_cause_are_named() {
        let cause = catalogue::find("netns-busy").unwrap();
        let text = explain(cause, Style { width: 400, ..Style::PLAIN });
        assert!(text.contains("mount-leaked-foreign-ns-el7 (on RHEL 7"), "{text}");
    }

    #[test]
    fn all_causes_are_rendered_in_columns() {
        for style in [Style::PLAIN, Style { color: true, width: 60, ..Style::PLAIN }] {
            let text = explain_all(style);
            for cause in catalogue::all() {
                assert!(text.contains(cause.id.as_str()), "{}", cause.id);
            }
        }
        let widest = catalogue::all().map(|cause| cause.id.as_str().len()).max().unwrap();
        let column = explain_all(Style::PLAIN)
            .find(catalogue::all().next().unwrap().title.get(..20).unwrap());
        assert_eq!(column, Some(widest + 2));
    }
}
