//! Prints the pods that are being deleted, each once, as soon as its line is final.

use std::{cell::RefCell, collections::BTreeSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    cli::ListOutput,
    model::deleted::{Deleted, DeletionsKnown},
};
use podstuck_show::present::{
    json::{self, Line},
    style::Style,
    text::{self, ListEnd},
};

/// State of the list.
#[derive(Clone, Debug)]
pub(crate) struct Lister {
    form: Option<ListOutput>,
    /// The options of the list, for the command that is printed.
    pub(crate) options: String,
    printed: RefCell<BTreeSet<String>>,
}

/// The end of the list, for a program.
#[derive(Serialize, JsonSchema)]
pub(crate) struct End<'a> {
    pods: usize,
    findings_beside: u64,
    saw_all: bool,
    api: Option<&'a str>,
    degraded: &'a [String],
}

impl Lister {
    pub(crate) fn new(form: Option<ListOutput>, options: String) -> Self {
        Self { form, options, printed: RefCell::default() }
    }

    /// The lines of the known pods that were not printed yet; at the end, of all the others.
    pub(crate) fn lines(
        &self,
        pods: &[Deleted],
        is_end: bool,
        at: Timestamp,
        style: Style,
    ) -> String {
        let (names, is_wide) = (text::name_width(pods), self.form == Some(ListOutput::Wide));
        let is_ready = |pod: &&Deleted| is_end || pod.is_known;
        let mut out = String::new();
        for pod in pods.iter().filter(is_ready) {
            if self.printed.borrow_mut().insert(pod.pod.uid.clone()) {
                out.push_str(&match self.form {
                    Some(ListOutput::Json) => json::line(at, &Line::Pod(pod)),
                    _ => text::listed(pod, names, is_wide, at, style),
                });
            }
        }
        out
    }

    /// The text after the list.
    pub(crate) fn end(&self, list: &ListEnd<'_>, at: Timestamp, style: Style) -> String {
        if self.form != Some(ListOutput::Json) {
            return text::list_end(list, style);
        }
        let ListEnd { pods, beside, api, saw_all, heard, degraded, .. } = *list;
        let saw_all = saw_all && heard == DeletionsKnown::All;
        let end = End { pods: pods.len(), findings_beside: beside, saw_all, api, degraded };
        json::render(at, "list", &end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::identity::Pod;
    use podstuck_show::present::sample;

    fn pod(uid: &str, is_known: bool) -> Deleted {
        let pod = Pod { uid: uid.into(), namespace: None, name: None };
        let cause = is_known.then(sample::finding);
        Deleted { pod, since: None, stage: None, cause, is_known, is_ambiguous: false }
    }

    #[test]
    fn each_pod_is_printed_once_as_soon_as_it_is_known() {
        let lister = Lister::new(None, String::new());
        let lines = |pods: &[Deleted], is_end| {
            let text = lister.lines(pods, is_end, sample::time(0), Style::PLAIN);
            text.lines()
                .map(|line| line.split_whitespace().nth(1).unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(&[pod("a", false), pod("b", true)], false), ["b"]);
        assert_eq!(lines(&[pod("a", true), pod("b", true), pod("c", false)], false), ["a"]);
        assert_eq!(lines(&[pod("a", true), pod("b", true), pod("c", false)], true), ["c"]);
    }

    #[test]
    fn a_program_gets_an_object_for_each_and_one_in_the_end() {
        let lister = Lister::new(Some(ListOutput::Json), String::new());
        let pods = [pod("a", true), pod("b", false)];
        let at = sample::time(0);
        let end = ListEnd {
            pods: &pods,
            beside: 1,
            api: None,
            saw_all: true,
            heard: DeletionsKnown::All,
            degraded: &[],
            options: "",
        };
        let text =
            lister.lines(&pods, true, at, Style::PLAIN) + &lister.end(&end, at, Style::PLAIN);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["pod", "pod", "list"]);
        assert_eq!(lines[0]["cause"]["id"], "volume-held-by-host-process");
        assert!(lines[1]["cause"].is_null() && lines[1]["pod"]["uid"] == "b");
        assert_eq!((&lines[2]["pods"], &lines[2]["findings_beside"]), (&2.into(), &1.into()));
    }
}
