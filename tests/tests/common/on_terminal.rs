//! The tool on a terminal of its own, by `script(1)`.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
};

use podstuck_tests::podstuck;

/// Why there can be none.
pub(crate) fn script() -> Result<(), &'static str> {
    let there = Command::new("script").arg("--version").stdout(Stdio::null()).status();
    there.map(drop).map_err(|_| "no script(1)")
}

/// Runs the tool with these options until it has shown these words; who has the other end of its terminal.
pub(crate) fn shown(options: &str, words: &str) -> Child {
    let tool = format!("exec {} {options}", podstuck().display());
    // A test that panics, or is killed, leaves no terminal with a watch behind, which would hold up the tests after it.
    let mut terminal = Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "script"])
        .args(["--quiet", "--command", &tool, "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = terminal.stdout.take().unwrap();
    // A screen has no lines.
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&all).contains(words) {
        let read = out.read(&mut some).unwrap();
        assert!(read > 0, "it ended before it showed {words:?}");
        all.extend_from_slice(&some[..read]);
    }
    terminal.stdout = Some(out);
    terminal
}
