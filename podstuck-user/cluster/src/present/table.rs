//! All stuck objects, one line each.

use podstuck_engine::cluster::{Answer, Case};
use podstuck_model::{chain::Who, path::safe, remedy::Remedy};

use super::{Kubectl, Report, age};

/// Maximum length of a command in the table, in bytes. A longer one is shown in the text about that object.
const COMMAND: usize = 100;

pub(super) fn all(
    report: &Report,
    namespace: Option<&str>,
    kubectl: &Kubectl,
    color: bool,
    wide: bool,
) -> String {
    let mut out = String::new();
    if report.answers.is_empty() {
        let place = namespace.map_or("the cluster".into(), |it| format!("the namespace {it}"));
        out.push_str(&format!("Nothing is stuck in {place}.\n"));
    } else {
        let mut head = vec!["KIND", "NAME", "AGE", "STAGE", "CAUSE", "CERTAINTY", "NODE"];
        if namespace.is_none() {
            head.insert(0, "NAMESPACE");
        }
        if wide {
            head.push("HELD BY");
        }
        head.push("NEXT");
        let mut rows: Vec<Vec<String>> = vec![head.into_iter().map(str::to_owned).collect()];
        let each = report.answers.iter();
        rows.extend(each.map(|answer| row(answer, report, namespace.is_none(), kubectl, wide)));
        out.push_str(&aligned(&rows, color));
    }
    if report.in_time > 0 {
        let (verb, their) = if report.in_time == 1 { ("is", "its") } else { ("are", "their") };
        out.push_str(&format!(
            "{} more {verb} being deleted, within {their} time.\n",
            report.in_time
        ));
    }
    out
}

fn row(
    answer: &Answer,
    report: &Report,
    with_namespace: bool,
    kubectl: &Kubectl,
    wide: bool,
) -> Vec<String> {
    let case = &answer.case;
    let leaf = answer.leaf();
    let first = leaf.first().or_else(|| case.first());
    let none = || "-".to_owned();
    let mut row = Vec::new();
    if with_namespace {
        row.push(case.key.namespace.clone().unwrap_or_else(none));
    }
    row.push(case.key.kind.name.to_string());
    row.push(case.key.name.clone());
    row.push(case.requested.map_or_else(none, |since| age(since, report.now)));
    row.push(case.step.map_or_else(none, |step| step.word().to_owned()));
    let cause = first.map_or_else(none, |found| found.id.to_string());
    row.push(if answer.below.is_empty() { cause } else { format!("{cause} ({})", name(leaf)) });
    row.push(first.map_or_else(none, |found| found.certainty.word().to_owned()));
    row.push(leaf.node.clone().or_else(|| case.node.clone()).unwrap_or_else(none));
    if wide {
        row.push(first.and_then(|found| found.held_by.as_ref()).map_or_else(none, Who::to_string));
    }
    row.push(next(answer, kubectl, wide));
    row.iter().map(|cell| safe(cell.as_bytes()).into_owned()).collect()
}

fn name(case: &Case) -> String {
    format!("{}/{}", case.key.kind.for_podstuck(), case.key.name)
}

/// The first step: the first remedy of the leaf if it fits; otherwise the command that shows the details.
fn next(answer: &Answer, kubectl: &Kubectl, wide: bool) -> String {
    let leaf = answer.leaf();
    let remedies = leaf.first().map(|found| found.remedies.as_slice()).unwrap_or_default();
    let first = remedies.first().filter(|remedy| wide || remedy.words().len() <= COMMAND);
    let text = |remedy: &Remedy| match &remedy.command {
        Some(command) => kubectl.command(command),
        None => remedy.words().to_owned(),
    };
    match (first, &leaf.examine) {
        (Some(remedy), None) => text(remedy),
        _ => ask(answer, kubectl),
    }
}

/// The command that shows the full text about an object.
fn ask(answer: &Answer, kubectl: &Kubectl) -> String {
    let key = &answer.case.key;
    let place = key.namespace.as_ref().map(|it| format!(" -n {it}")).unwrap_or_default();
    kubectl.command(&format!("kubectl podstuck {}{place}", name(&answer.case)))
}

/// Aligned like kubectl's tables: three spaces between columns, no trailing spaces.
fn aligned(rows: &[Vec<String>], color: bool) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|it| it.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or_default()).collect();
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let last = at + 1 == row.len();
            let space = if last { 0 } else { widths[at] - cell.chars().count() + 3 };
            line.push_str(cell);
            line.push_str(&" ".repeat(space));
        }
        let line = line.trim_end();
        if color && number == 0 {
            out.push_str(&format!("\u{1b}[1m{line}\u{1b}[0m\n"));
        } else {
            out.push_str(&format!("{line}\n"));
        }
    }
    out
}
