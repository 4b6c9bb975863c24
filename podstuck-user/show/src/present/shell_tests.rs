//! Checks how shells read the names in the commands that are printed for them.

use std::{
    ffi::OsStr,
    io::Write,
    os::unix::ffi::OsStrExt,
    process::{Command, Stdio},
    sync::LazyLock,
};

use podstuck_fuzz::runner;
use proptest::{collection::vec, prelude::*, sample::select};
use regex::Regex;

use podstuck_model::shell::{line, word};

/// Names per run of a shell, which costs a thousand times what a line does.
const NAMES: usize = 60;

/// The forms of a name: unquoted, in quotes, and as data for a script that contains nothing of it.
static FORMS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^(?:env -i -0 x=[A-Za-z0-9/._-]+",
        r"|env -i -0 x='[ -~&&[^'\\!]]*'",
        r#"|printf '(?:[A-Za-z0-9/._-]|\\[0-7]{3})+' \| xargs -0 sh -c 'env -i -0 x="\$1"' sh)$"#
    ))
    .unwrap()
});

/// Any bytes but NUL, and often characters that shells interpret.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let special = select(&b"~=:$`\\'\"!{},*?[]()<>|&;# \t\n\r-+@%^./\x1b\x7f\xff\xc3\xa4aZ0x"[..]);
    let name = vec(prop_oneof![3 => special, 1 => 1..=255_u8], 0..24);
    name.prop_filter("an option", |name| !name.starts_with(b"-"))
}

/// The command that prints this name.
fn printing(name: &[u8]) -> String {
    let text = format!("env -i -0 x={}", word(OsStr::from_bytes(name)));
    let line = line(&text, false).unwrap().text;
    assert!(FORMS.is_match(&line), "{line}");
    line
}

#[test]
fn a_name_has_one_of_three_forms() {
    runner(20_000)
        .run(&name(), |name| {
            printing(&name);
            Ok(())
        })
        .unwrap();
}

fn hold(shell: &str, names: &[Vec<u8>]) {
    let lines: Vec<String> = names.iter().map(|name| printing(name)).collect();
    let mut child = Command::new(shell)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|why| panic!("{shell}: {why}"));
    let script = lines.join("\n") + "\n";
    let mut input = child.stdin.take().unwrap();
    // Both pipes may fill: the shell answers while it is written to.
    let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{shell} ends with {}", output.status);
    let seen: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
    for ((name, line), seen) in names.iter().zip(&lines).zip(&seen) {
        assert_eq!(seen.strip_prefix(b"x="), Some(&name[..]), "{shell} reads {line}");
    }
    assert_eq!(seen.len(), names.len() + 1);
}

#[test]
fn shells_take_every_name_for_what_it_is() {
    for shell in ["bash", "sh"] {
        let names = vec(name(), 1..NAMES);
        runner(12)
            .run(&names, |names| {
                hold(shell, &names);
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn what_was_found_is_held() {
    let found: [&[u8]; 4] = [b"", b"a=~", b"a=b:~root", b"~"];
    hold("bash", &found.map(<[u8]>::to_vec));
}
