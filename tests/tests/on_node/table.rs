//! The two tables of docs/on-node.md: each case with its answer, right or wrong.

use std::{env, fmt::Write as _, fs, time::Duration};

use jiff::Timestamp;

use super::{
    Stuck,
    case::{Trouble, api_hangs, api_refuses},
    late,
};
use crate::asked::is_chosen;

/// `PODSTUCK_BLESS=1` writes the cells of this run there, and leaves those of other runs as they are.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/on-node.md");
/// Before the table of what was asked from the node, with the API server: a row for each case.
const CASES: &str = "## Answers\n";
/// Before the table of the same cases, asked in other ways: a column for each way.
const OTHER_WAYS: &str = "## Answers from a debug pod, and without the API server\n";

/// Writes the cells of this run, if that is wanted.
pub fn write(all: &[Stuck], trouble: Trouble) {
    if env::var_os("PODSTUCK_BLESS").is_none() {
        return;
    }
    let (way, asked_after) = (way(), format!("{} s", late().as_secs()));
    let today = Timestamp::now().strftime("%F").to_string();
    let heading = if way.is_empty() { CASES } else { OTHER_WAYS };
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let document = edit(&document, heading, |table| {
        if way.is_empty() {
            for stuck in all {
                table.set(stuck.case.name, "asked after", &asked_after);
                table.set(stuck.case.name, "on", &today);
                row(stuck)
                    .iter()
                    .for_each(|(column, cell)| table.set(stuck.case.name, column, cell));
            }
        } else {
            // Without a trouble, since these are asked by themselves, at other times.
            if trouble == Trouble::None {
                table.set("*asked after*", &way, &asked_after);
                table.set("*on*", &way, &today);
            }
            all.iter().for_each(|stuck| table.set(stuck.case.name, &way, &in_short(stuck)));
        }
    });
    fs::write(DOCUMENT, document).unwrap();
}

/// How this run asks; empty from the node, with the API server and containerd.
fn way() -> String {
    let from = is_chosen("PODSTUCK_NODE_FROM", "pod").then_some("from a debug pod");
    let api = match (api_hangs(), api_refuses()) {
        (true, _) => Some("while the API server hangs"),
        (_, true) => Some("while the API server is down"),
        _ => None,
    };
    let docker = is_chosen("PODSTUCK_NODE_RUNTIME", "docker").then_some("with Docker");
    [from, api, docker].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn seconds(time: Option<Duration>) -> String {
    time.map(|time| format!("{:.1} s", time.as_secs_f64())).unwrap_or_default()
}

/// The cells of a case, by their columns.
fn row(stuck: &Stuck) -> [(&'static str, String); 6] {
    let asked = stuck.asked.as_ref().unwrap();
    let causes = asked.causes().join(", ");
    let right = if stuck.case.is_right(asked) { "yes" } else { "no" };
    let gone = stuck.released_after.map(|after| format!("{} s", after.as_secs()));
    [
        ("causes", if causes.is_empty() { "none".to_owned() } else { causes }),
        ("right", right.to_owned()),
        ("certainty", asked.first()["certainty"].as_str().unwrap_or_default().to_owned()),
        ("late", seconds(Some(asked.took))),
        ("live", seconds(stuck.reported.after_failure.or(stuck.reported.after_deletion))),
        ("pod gone", gone.unwrap_or_default()),
    ]
}

/// The answer to a case in one cell: the causes are those of its row in the first table, unless it says otherwise.
fn in_short(stuck: &Stuck) -> String {
    let asked = stuck.asked.as_ref().unwrap();
    let mut cell = match asked.causes()[..] {
        [] if stuck.case.is_right(asked) => "no cause, ".to_owned(),
        _ if stuck.case.is_right(asked) => String::new(),
        [] => "wrong: no cause, ".to_owned(),
        ref causes => format!("wrong: {}, ", causes.join(" ")),
    };
    cell.push_str(&seconds(Some(asked.took)));
    if let Some(after) = stuck.released_after {
        write!(cell, ", gone {} s", after.as_secs()).unwrap();
    }
    cell
}

/// A table of Markdown. The first column has the cases.
struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn parse(text: &str) -> Self {
        let cells = |line: &str| -> Vec<String> {
            line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let mut lines = text.lines();
        let columns = cells(lines.next().unwrap());
        Self { columns, rows: lines.skip(1).map(cells).collect() }
    }

    /// Sets a cell, in a new row or column at the end if it needs one.
    fn set(&mut self, case: &str, column: &str, cell: &str) {
        let nth = self.columns.iter().position(|it| it == column).unwrap_or_else(|| {
            self.columns.push(column.to_owned());
            self.rows.iter_mut().for_each(|row| row.push(String::new()));
            self.columns.len() - 1
        });
        let row = self.rows.iter().position(|row| row[0] == case).unwrap_or_else(|| {
            let mut row = vec![String::new(); self.columns.len()];
            row[0] = case.to_owned();
            self.rows.push(row);
            self.rows.len() - 1
        });
        self.rows[row][nth] = cell.to_owned();
    }

    fn to_markdown(&self) -> String {
        let line = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
        let rule = format!("{}|\n", "|---".repeat(self.columns.len()));
        let rows: String = self.rows.iter().map(line).collect();
        format!("{}{rule}{rows}", line(&self.columns))
    }
}

/// A document whose first table of cases behind this heading was changed.
fn edit(document: &str, heading: &str, change: impl FnOnce(&mut Table)) -> String {
    let (before, behind) = document.split_once(heading).unwrap();
    let begin = behind.find("\n| case |").unwrap() + 1;
    let end = behind[begin..].find("\n\n").map_or(behind.len(), |at| begin + at + 1);
    let mut table = Table::parse(&behind[begin..end]);
    change(&mut table);
    let (text, rest) = (&behind[..begin], &behind[end..]);
    format!("{before}{heading}{text}{}{rest}", table.to_markdown())
}

#[test]
fn a_run_changes_its_own_cells_only() {
    let document = "# Title\n\n## Other\n\n| case |\n|---|\n| two |\n\n## Answers\n\nText.\n\n\
        | case | late | on |\n|---|---|---|\n| one | 1.0 s | Monday |\n| two | 2.0 s | Monday |\n\n## Next\n";
    let edited = edit(document, CASES, |table| {
        table.set("two", "late", "3.5 s");
        table.set("three", "late", "4.0 s");
        table.set("one", "live", "0.1 s");
    });
    let expected = document
        .replace(
            "| case | late | on |\n|---|---|---|\n",
            "| case | late | on | live |\n|---|---|---|---|\n",
        )
        .replace("| one | 1.0 s | Monday |", "| one | 1.0 s | Monday | 0.1 s |")
        .replace(
            "| two | 2.0 s | Monday |\n",
            "| two | 3.5 s | Monday |  |\n| three | 4.0 s |  |  |\n",
        );
    assert_eq!(edited, expected);
}

#[test]
fn the_document_has_both_tables_as_they_are_written() {
    let document = fs::read_to_string(DOCUMENT).unwrap();
    for (heading, column) in [(CASES, "late"), (OTHER_WAYS, "from a debug pod")] {
        let unchanged = edit(&document, heading, |table| {
            assert!(table.columns.iter().any(|it| it == column), "{heading}: {:?}", table.columns);
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{heading}");
            assert!(table.rows.iter().any(|row| row[0] == "immutable"), "{heading}");
        });
        assert_eq!(unchanged, document, "{heading}");
    }
}
