//! Reports of labs' recordings: the same counts and findings as in the replay's lines and files, and a page that a
//! browser shows without a request.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use podstuck_tests::{of_type, podstuck, replay, skip};
use regex::Regex;
use serde_json::Value;

const RECORDINGS: [&str; 6] = [
    "volume-held-by-host-process",
    "emptydir-mass-files",
    "immutable-attribute",
    "fuse-daemon-hung",
    "csi-driver-lost-publish-state",
    "healthy",
];

fn recording(name: &str) -> PathBuf {
    let recordings = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings");
    Path::new(recordings).join(format!("{name}.zst"))
}

/// What `podstuck report` prints.
fn report(file: &Path, options: &[&str]) -> String {
    let output = Command::new(podstuck()).arg("report").arg(file).args(options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""));
    String::from_utf8(output.stdout).unwrap()
}

/// A replay's lines, and its files.
fn replayed(name: &str) -> (Vec<Value>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (lines, _) = replay(&recording(name), &["--export", dir.path().to_str().unwrap()]);
    (lines, dir)
}

/// The cells of a table's rows; a latency is its number of nanoseconds.
fn rows(page: &str, table: &str) -> Vec<Vec<String>> {
    let (_, rest) = page.split_once(&format!("<table id=\"{table}\">")).unwrap();
    let (_, body) = rest.split_once("<tbody>").unwrap();
    let (body, _) = body.split_once("</tbody>").unwrap();
    let cell = Regex::new(r#"<td(?: class="\w+")?(?: data-ns="([\d.]+)")?>([^<]*)</td>"#).unwrap();
    let text = |text: &str| {
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
        text.replace("&amp;", "&")
    };
    let of = |row: &str| {
        let cells = cell.captures_iter(row);
        cells.map(|it| it.get(1).map_or_else(|| text(&it[2]), |ns| ns.as_str().into())).collect()
    };
    body.split("<tr>").skip(1).map(of).collect()
}

/// The findings of a page: name, cause, and how often it was seen.
fn findings(page: &str) -> BTreeMap<(String, String), u64> {
    let all = Regex::new(
        r#"data-instance="([^"]*)"><h3>\d+\. ([a-z0-9-]*)</h3>.*?<dt>seen</dt><dd>(once|[\d,]+ times)"#,
    );
    let all = all.unwrap();
    all.captures_iter(page)
        .map(|it| {
            let times = it[3].replace("once", "1").replace(" times", "").replace(',', "");
            ((it[1].to_owned(), it[2].to_owned()), times.parse().unwrap())
        })
        .collect()
}

#[test]
fn a_report_is_the_same_as_the_exported_one() {
    for name in RECORDINGS {
        let (_, dir) = replayed(name);
        let exported = fs::read_to_string(dir.path().join("report.html")).unwrap();
        assert_eq!(report(&recording(name), &[]), exported, "{name}");
    }
}

#[test]
fn every_number_and_finding_is_that_of_the_lines_and_files() {
    for name in RECORDINGS {
        let (lines, dir) = replayed(name);
        let file = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        // The summary's counts, by the page of the recording and by that of the directory.
        let summary = of_type(&lines, "summary").pop().unwrap().clone();
        let mut counted = BTreeMap::new();
        for (call, outcomes) in summary["by_outcome"].as_object().unwrap() {
            for (outcome, calls) in outcomes.as_object().unwrap() {
                counted.insert((call.clone(), outcome.clone()), calls.as_u64().unwrap());
            }
        }
        let mut last: BTreeMap<String, Value> = BTreeMap::new();
        for line in file("findings.jsonl").lines() {
            let finding: Value = serde_json::from_str(line).unwrap();
            last.insert(finding["instance"].as_str().unwrap().into(), finding);
        }
        let open: BTreeMap<(String, String), u64> = last
            .iter()
            .filter(|(_, finding)| finding["state"] != "cleared")
            .map(|(name, finding)| {
                let id = finding["id"].as_str().unwrap().into();
                ((name.clone(), id), finding["count"].as_u64().unwrap())
            })
            .collect();
        for (page, from) in
            [(report(&recording(name), &[]), "recording"), (report(dir.path(), &[]), "export")]
        {
            let shown: BTreeMap<(String, String), u64> = rows(&page, "outcomes")
                .into_iter()
                .map(|row| {
                    ((row[0].clone(), row[1].clone()), row[2].replace(',', "").parse().unwrap())
                })
                .collect();
            assert_eq!(shown, counted, "{name}, {from}");
            let csv: Vec<Vec<String>> = file("histograms.csv")
                .lines()
                .skip(1)
                .map(|row| row.split(',').map(str::to_owned).collect())
                .collect();
            let mut shown = rows(&page, "series");
            shown.iter_mut().for_each(|row| row[5] = row[5].replace(',', ""));
            assert_eq!(shown, csv, "{name}, {from}");
            let shown = findings(&page);
            assert_eq!(shown.keys().collect::<Vec<_>>(), open.keys().collect::<Vec<_>>());
            for (finding, times) in &open {
                // A line comes every five seconds at most; a recording has what came after the last one.
                let is_right = if from == "export" {
                    shown[finding] == *times
                } else {
                    shown[finding] >= *times
                };
                assert!(
                    is_right,
                    "{name}, {from}: {finding:?} {times} times, shown {}",
                    shown[finding]
                );
            }
        }
    }
}

#[test]
fn a_ticket_has_the_answer_its_evidence_and_commands() {
    let text = report(&recording("volume-held-by-host-process"), &["--format", "markdown"]);
    let (lines, dir) = replayed("volume-held-by-host-process");
    let finding = of_type(&lines, "finding").pop().unwrap().clone();
    let holder = "has its working directory there";
    let facts =
        finding["evidence"].as_array().unwrap().iter().map(|it| it["fact"].as_str().unwrap());
    assert!(text.contains(facts.into_iter().find(|fact| fact.contains(holder)).unwrap()), "{text}");
    for remedy in finding["remedies"].as_array().unwrap() {
        if let Some(command) = remedy["command"].as_str() {
            assert!(text.contains(&format!("\n```sh\n{command}\n```\n")), "{command} in {text}");
        }
    }
    assert!(text.contains("nothing was lost"), "{text}");
    let of_export = report(dir.path(), &["--format", "markdown"]);
    assert!(of_export.contains("`volume-held-by-host-process`: blocks the pod"), "{of_export}");
    assert!(of_export.contains("made from exported files"), "{of_export}");
}

#[test]
fn what_is_neither_is_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text");
    fs::write(&file, "no recording").unwrap();
    for (path, words) in
        [(dir.path(), "findings.jsonl is missing"), (&file, "is not a recording of podstuck")]
    {
        let output = Command::new(podstuck()).arg("report").arg(path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_file_is_written_where_it_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        let mut command = Command::new(podstuck());
        command.arg("report").arg(recording("healthy")).args(["--out", "a.html"]);
        command.current_dir(dir.path()).output().unwrap()
    };
    for output in [run(), run()] {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(output.stdout, b"");
    }
    let written = fs::read_to_string(dir.path().join("a.html")).unwrap();
    assert_eq!(written, report(&recording("healthy"), &[]));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_full_disk_is_no_success() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(podstuck());
    let output = command.arg("report").arg(recording("healthy")).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("cannot write to standard output: No space left"), "{said}");
}

/// In a browser, if there is one: Debian's `chromium`.
#[test]
fn a_browser_makes_no_request_and_complains_of_nothing() {
    let found = ["chromium", "google-chrome"].into_iter().find(|program| {
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    let Some(browser) = found else {
        return skip("no browser: `apt-get install --no-install-recommends chromium`");
    };
    for name in RECORDINGS {
        let (complaints, asked, shown) = browsed(browser, &report(&recording(name), &[]));
        assert_eq!((complaints, asked), (Vec::new(), BTreeSet::new()), "{name}");
        assert!(shown.contains("<h1>") && !shown.contains("<script"), "{name}: {shown}");
    }
    // That these are seen where there are some.
    let bad = "<!DOCTYPE html><img src=\"http://127.0.0.1:9/\"><script>throw 1</script>";
    let (complaints, asked, _) = browsed(browser, bad);
    assert!(complaints.len() == 1 && asked.len() == 1, "{complaints:?} {asked:?}");
}

/// What a browser complains of, whose requests it makes, and what it has made of a page.
fn browsed(browser: &str, page: &str) -> (Vec<String>, BTreeSet<String>, String) {
    let dir = tempfile::tempdir().unwrap();
    let (file, net) = (dir.path().join("page.html"), dir.path().join("net.json"));
    fs::write(&file, page).unwrap();
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--no-first-run"]);
    command.args(["--disable-background-networking", "--disable-component-update"]);
    command.args(["--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND"]);
    command.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
    command.arg(format!("--log-net-log={}", net.display()));
    let output = command.arg(format!("file://{}", file.display())).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let complaints = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned);
    let log = fs::read_to_string(&net).unwrap();
    let initiator = Regex::new(r#""initiator":"([^"]*)""#).unwrap();
    let asked = initiator.captures_iter(&log).map(|it| it[1].to_owned());
    // The browser asks its maker for things, which is no page's wish.
    let asked = asked.filter(|who| who != "not an origin").collect();
    (complaints.collect(), asked, String::from_utf8_lossy(&output.stdout).into_owned())
}
