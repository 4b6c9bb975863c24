//! No output contains a control or an invisible character, whatever names others have chosen.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf, sync::LazyLock, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use podstuck_fuzz::runner;
use regex::Regex;

use super::{
    foreign::Foreign,
    json::{self, Line},
    sample,
    style::Style,
    text,
};
use crate::export::{
    csv::csv,
    hlog::hlog,
    prometheus::{Counts, prometheus},
};
use podstuck_model::{
    deleted::{Deleted, DeletionsKnown},
    diagnosis::Gone,
    finding::FindingState,
    path::JsonPath,
};

/// Begins a forged line.
const FORGED: &str = "FORGED";

/// Invisible characters, by Unicode's tables in a library that the renderers do not use.
static UNSEEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}[\p{Zs}--\x20]\u{2800}]",
    )
    .unwrap()
});

/// Text for people and files: newline is the only control character.
fn is_shown(text: &str) {
    let text = text.replace('\n', "");
    let unseen = UNSEEN.find(&text).map(|found| found.as_str().escape_unicode().to_string());
    assert_eq!(unseen, None, "in {text:?}");
}

fn is_unforged(text: &str) {
    is_shown(text);
    assert!(!text.lines().any(|line| line.starts_with(FORGED)), "{text}");
}

/// The paths of a line are the ones that were meant: `path`, or `path_bytes` beside it.
fn paths_of(value: &serde_json::Value, found: &mut Vec<PathBuf>) {
    let bytes = |text: &str| BASE64_STANDARD.decode(text).unwrap();
    match value {
        serde_json::Value::Object(fields) => {
            let encoded = fields.get("path_bytes").map(|text| bytes(text.as_str().unwrap()));
            let plain = || fields.get("path").map(|text| text.as_str().unwrap().into());
            let path = encoded.or_else(plain);
            found.extend(path.map(|path| PathBuf::from(OsStr::from_bytes(&path))));
            fields.values().for_each(|value| paths_of(value, found));
        }
        serde_json::Value::Array(all) => all.iter().for_each(|value| paths_of(value, found)),
        _ => {}
    }
}

fn is_one_line(of: &Line<'_>, path: Option<&JsonPath>) {
    let line = json::line(sample::time(0), of);
    is_shown(&line);
    assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_ne!(value["type"], "error", "{line}");
    let mut paths = Vec::new();
    paths_of(&value, &mut paths);
    assert!(path.is_none_or(|path| paths.contains(&path.0)), "{path:?} is not in {line}");
}

#[test]
fn people_and_programs_see_every_character_and_no_forged_line() {
    const STYLE: Style = Style { width: 72, ..Style::PLAIN };
    runner(1500)
        .run(&Foreign::any(), |names| {
            let mut all = Foreign::new(names);
            for state in [FindingState::New, FindingState::Update, FindingState::Cleared] {
                let finding = all.finding(state);
                is_unforged(&text::finding(&finding, STYLE));
                is_unforged(&text::update(&finding, &all.finding(state), STYLE));
                is_one_line(&Line::Finding(&finding), Some(&finding.call.path));
            }
            let (hung, progress, start) = (all.hung(), all.progress(), all.start());
            is_unforged(&text::hung(&hung, STYLE));
            is_one_line(&Line::Hung(&hung), Some(&hung.path));
            is_unforged(&text::progress(&progress, STYLE));
            is_one_line(&Line::Progress(&progress), Some(&progress.path));
            is_unforged(&text::start(&start, STYLE));
            is_one_line(&Line::Start(&start), None);
            let (summary, diagnosis) = (all.summary(), all.diagnosis());
            is_unforged(&text::summary(&summary, text::Found::Findings(3), STYLE));
            is_one_line(&Line::Summary(&summary), None);
            is_unforged(&text::diagnosis(&diagnosis, Timestamp::UNIX_EPOCH, STYLE));
            is_unforged(&text::answer(&diagnosis, Timestamp::UNIX_EPOCH, STYLE));
            is_one_line(&Line::Diagnosis(&diagnosis), None);
            let (pod, cause) = (all.pod(), Some(all.finding(FindingState::New)));
            is_unforged(&text::gone(&Gone { pod: all.pod(), after_s: 1.0 }));
            let (is_known, is_ambiguous) = (true, true);
            let one = Deleted { pod, since: None, stage: None, cause, is_known, is_ambiguous };
            for is_wide in [false, true] {
                is_unforged(&text::listed(&one, 0, is_wide, Timestamp::UNIX_EPOCH, STYLE));
            }
            is_one_line(&Line::Pod(&one), None);
            let pods = [one];
            let list = text::ListEnd {
                pods: &pods,
                beside: 1,
                api: None,
                saw_all: false,
                heard: DeletionsKnown::None,
                degraded: &[],
                options: "",
            };
            is_unforged(&text::list_end(&list, STYLE));
            let (holder, search) = (all.holder(), all.search());
            is_unforged(&text::holder(&holder, STYLE));
            is_one_line(&Line::Holder(&holder), Some(&holder.object));
            is_unforged(&text::search(&search, STYLE));
            is_one_line(&Line::Search(&search), Some(&search.subject.path));
            Ok(())
        })
        .unwrap();
}

#[test]
fn exported_files_hold_every_name_in_its_place() {
    runner(500)
        .run(&Foreign::any(), |names| {
            let mut all = Foreign::new(names);
            let (table, found) = (all.series(), [all.finding(FindingState::New)]);
            let (names, lost) = (all.names(&table), all.summary().completeness);
            let (start, window) = (sample::time(0), Duration::from_secs(9));
            let rows = String::from_utf8(csv(&table, &names).unwrap()).unwrap();
            is_unforged(&rows);
            assert_eq!(rows.lines().count(), 1 + table.len(), "{rows}");
            let log = String::from_utf8(hlog(start, window, (&table, &names)).unwrap()).unwrap();
            is_unforged(&log);
            assert_eq!(log.matches("Tag=").count(), table.len(), "{log}");
            let counts = Counts::ByTarget(&table, &names);
            let metrics = prometheus(start, window, counts, &found, &lost).text().unwrap();
            is_unforged(&metrics);
            assert_eq!(metrics.matches("podstuck_calls_total{").count(), table.len(), "{metrics}");
            Ok(())
        })
        .unwrap();
}
