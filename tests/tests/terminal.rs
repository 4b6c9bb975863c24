//! The screen on a real terminal: what is seen, what keys do, and that the terminal is given back however it ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "common/tmux.rs"]
mod tmux;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{late_lab_if_possible, podstuck, requires, root_and_btf, run, skip, slowdown};
use tempfile::TempDir;
use tmux::{PROMPT, Tmux};

const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/volume-held-by-host-process.zst");

/// A terminal, or the test is skipped.
macro_rules! terminal {
    ($width:expr, $height:expr, $environment:expr) => {
        match Tmux::start($width, $height, $environment) {
            Some(tmux) => tmux,
            None => return skip("no tmux"),
        }
    };
}

fn replay(tmux: &Tmux) -> String {
    tmux.line(&format!("{} replay {RECORDING}; echo status=$?", podstuck().display()));
    tmux.wait_for("the end of the replay", |screen| screen.contains("· ended"))
}

fn is_back(screen: &str) -> bool {
    screen.contains("status=") && screen.trim_end().ends_with(PROMPT)
}

#[test]
fn a_replay_shows_the_answer_and_prints_it_in_the_end() {
    let tmux = terminal!(80, 24, &[]);
    let screen = replay(&tmux);
    for words in [
        "volume-held-by-host-process",
        "certain",
        "do     end sleep (pid 13800)",
        "kill 13800",
        "nothing lost",
    ] {
        assert!(screen.contains(words), "{words} in\n{screen}");
    }
    tmux.key("3");
    tmux.wait_for("rates", |screen| screen.contains("deleted/s"));
    tmux.key("Tab");
    tmux.wait_for("latencies", |screen| screen.contains("59 calls: p50"));
    tmux.key("6");
    tmux.wait_for("attempts", |screen| screen.contains("4 attempts"));
    tmux.key("?");
    tmux.wait_for("the keys", |screen| screen.contains("print what was found"));
    tmux.key("Escape");
    tmux.key("1");
    tmux.key("/");
    tmux.line("no such thing");
    tmux.wait_for("nothing that fits", |screen| screen.contains("no finding contains that"));
    tmux.key("Escape");
    tmux.wait_for("the finding again", |screen| screen.contains("▸ WARNING"));
    tmux.key("e");
    tmux.wait_for("why not", |screen| screen.contains("started without --export"));
    tmux.key("q");
    tmux.wait_for("the prompt", is_back);
    let all = tmux.all();
    for words in
        ["WARNING volume-held-by-host-process (new)", "  kill 13800\n", "1 finding in", "status=1"]
    {
        assert!(all.contains(words), "{words} in\n{all}");
    }
    tmux.assert_restored();
}

#[test]
fn another_size_is_drawn_at_once() {
    let tmux = terminal!(80, 24, &[]);
    replay(&tmux);
    tmux.resize(200, 60);
    tmux.wait_for("all panes", |screen| {
        ["Rates of pods", "Mass deletions", "Attempts, those"].iter().all(|it| screen.contains(it))
    });
    tmux.resize(30, 8);
    tmux.wait_for("that it is too small", |screen| screen.contains("too small"));
    tmux.resize(80, 24);
    tmux.wait_for("the finding", |screen| screen.contains("▸ WARNING"));
}

#[test]
fn colours_are_those_that_every_terminal_has_and_none_where_none_are_wanted() {
    let tmux = terminal!(120, 40, &[("TERM", "screen-256color")]);
    replay(&tmux);
    let seen = tmux.attributes();
    let is_colour =
        |number: &&String| number.parse::<u32>().is_ok_and(|n| n >= 30 && n != 39 && n != 49);
    assert!(seen.iter().any(|number| is_colour(&number)), "{seen:?}");
    // 38 and 48 begin one of 256, or of all.
    assert!(!seen.iter().any(|number| number == "38" || number == "48"), "{seen:?}");
    let plain = terminal!(120, 40, &[("NO_COLOR", "1")]);
    replay(&plain);
    let seen = plain.attributes();
    assert_eq!(seen.iter().find(is_colour), None, "{seen:?}");
}

#[test]
fn a_command_reaches_the_clipboard() {
    let tmux = terminal!(80, 24, &[]);
    tmux.allow_clipboard();
    replay(&tmux);
    tmux.key("y");
    tmux.wait_for("what was done", |screen| {
        screen.contains("clipboard, if it has one: kill 13800")
    });
    assert_eq!(tmux.clipboard(), "kill 13800");
}

#[test]
fn a_signal_gives_the_terminal_back() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let tmux = terminal!(80, 24, &[]);
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("pid");
        let (pid, program) = (file.display(), podstuck());
        let program = program.display();
        tmux.line(&format!(
            "sh -c 'echo $$ > {pid}; exec {program} replay {RECORDING}'; echo status=$?"
        ));
        tmux.wait_for("the end of the replay", |screen| screen.contains("· ended"));
        kill(pid_in(&file), signal).unwrap();
        tmux.wait_for("the prompt", is_back);
        assert!(tmux.all().contains("1 finding in"), "{signal}: {}", tmux.all());
        tmux.assert_restored();
    }
}

fn pid_in(file: &Path) -> Pid {
    Pid::from_raw(fs::read_to_string(file).unwrap().trim().parse().unwrap())
}

#[test]
fn a_live_run_ends_by_q_by_signals_and_by_its_time() {
    requires!(root_and_btf());
    let dir = TempDir::new().unwrap();
    let (path, file) = (dir.path().display(), dir.path().join("pid"));
    let (pid, program) = (file.display(), podstuck());
    let watch = format!("{} watch --path {path} --api never", program.display());
    let tmux = terminal!(80, 24, &[]);
    let is_there = |screen: &str| screen.contains("nothing wrong was found so far");

    tmux.line(&format!("{watch}; echo status=$?"));
    tmux.wait_for("the screen", is_there);
    // What is called is seen, without an event about it.
    for n in 0..20 {
        fs::write(dir.path().join(n.to_string()), "").unwrap();
        fs::remove_file(dir.path().join(n.to_string())).unwrap();
    }
    tmux.key("3");
    tmux.wait_for("20 deletions", |screen| {
        let all = screen.lines().find(|line| line.starts_with("┃all "));
        all.is_some_and(|line| line.split_whitespace().nth(2) == Some("20"))
    });
    tmux.key("p");
    tmux.wait_for("that it is held", |screen| screen.contains("PAUSED"));
    tmux.key("q");
    tmux.wait_for("the prompt", is_back);
    assert!(tmux.all().contains("nothing wrong was found in"), "{}", tmux.all());
    tmux.assert_restored();

    tmux.line("clear");
    tmux.line(&format!("sh -c 'echo $$ > {pid}; exec {watch}'; echo status=$?"));
    tmux.wait_for("the screen", is_there);
    kill(pid_in(&file), Signal::SIGTERM).unwrap();
    tmux.wait_for("the prompt", is_back);
    tmux.assert_restored();

    // The second one does not wait for the end.
    tmux.line("clear");
    tmux.line(&format!("sh -c 'echo $$ > {pid}; exec {watch}'; echo status=$?"));
    tmux.wait_for("the screen", is_there);
    tmux.key("C-c");
    tmux.key("C-c");
    tmux.wait_for("the prompt", is_back);
    tmux.assert_restored();

    tmux.line("clear");
    tmux.line(&format!("{watch} --duration 1s; echo status=$?"));
    tmux.wait_for("the end, which stays", |screen| screen.contains("· ended"));
    tmux.key("q");
    tmux.wait_for("the prompt", |screen| screen.contains("status=0"));
    tmux.assert_restored();
}

#[test]
fn a_diagnosis_stays_on_the_screen_and_is_printed_in_the_end() {
    requires!(root_and_btf());
    let dir = TempDir::new().unwrap();
    let (path, program) = (dir.path().display(), podstuck());
    let tmux = terminal!(80, 24, &[]);
    let diagnose = format!("{} diagnose --path {path} --api never --timeout 2s", program.display());
    tmux.line(&format!("{diagnose}; echo status=$?"));
    let screen = tmux.wait_for("the end, which stays", |screen| screen.contains("· ended"));
    assert!(screen.contains("nothing wrong was found"), "{screen}");
    tmux.key("q");
    tmux.wait_for("the prompt", is_back);
    let all = tmux.all();
    assert!(all.contains("nothing wrong was found in") && all.contains("status=0"), "{all}");
    tmux.assert_restored();
    // The short answer is text.
    tmux.line("clear");
    tmux.line(&format!("{diagnose} --brief; echo status=$?"));
    tmux.wait_for("the prompt", |screen| {
        is_back(screen) && screen.contains("nothing that holds it was seen")
    });
}

#[test]
fn alone_it_lists_the_pods_that_are_being_deleted() {
    requires!(root_and_btf());
    const CASE: &str = "volume-held-by-host-process";
    let tmux = terminal!(120, 24, &[]);
    let alone = |root: &str| {
        let program = podstuck();
        tmux.line("clear");
        tmux.line(&format!(
            "{} --kubelet-root {root} --api never; echo status=$?",
            program.display()
        ));
        tmux.wait_for("the prompt", is_back)
    };
    // Where nothing is deleted, and no source that could say otherwise is asked.
    let dir = TempDir::new().unwrap();
    let screen = alone(dir.path().to_str().unwrap());
    // A kubelet that another test starts counts as the node's.
    let is_clear = screen.contains("no pod of this node is being deleted");
    let is_unknown = screen.contains("no kubelet acts on this node");
    assert!(is_clear != is_unknown, "{screen}");
    assert!(screen.contains("the API server was not asked"), "{screen}");

    let Some((lab, ready)) = late_lab_if_possible(CASE, &[]) else {
        return skip(format!("lab {CASE} cannot be played here"));
    };
    lab.resume();
    let begun = Instant::now();
    let screen = alone(ready["kubelet_root"].as_str().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(15) * slowdown(), "{:?}", begun.elapsed());
    let name = format!("podstuck-lab/{CASE}");
    let line = screen.lines().find(|line| line.trim_start().starts_with(&name)).unwrap();
    assert!(line.contains("  volumes  ") && line.contains(&format!("{CASE}, certain")), "{screen}");
    let more = format!("more: podstuck diagnose {name} --kubelet-root /");
    assert!(screen.contains(&more) && screen.contains("status=1"), "{screen}");
    drop(lab);
}

#[test]
fn text_stays_text_where_it_is_asked_for_or_there_is_no_terminal() {
    let replayed = run(&["replay", RECORDING]);
    let text = String::from_utf8(replayed.stdout).unwrap();
    assert!(text.contains("1 finding in") && !text.contains('\u{1b}'), "{text}");
    let refused = run(&["replay", RECORDING, "--output", "tui"]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("--output text"), "{why}");
    let tmux = terminal!(80, 24, &[]);
    for (variables, options) in [("", "--output text"), ("TERM=dumb", "")] {
        let program = podstuck();
        tmux.line("clear");
        tmux.line(&format!(
            "{variables} {} replay {RECORDING} {options}; echo status=$?",
            program.display()
        ));
        tmux.wait_for("the prompt", |screen| is_back(screen) && screen.contains("1 finding in"));
    }
}
