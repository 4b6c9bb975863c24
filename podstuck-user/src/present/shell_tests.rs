//! What a shell makes of the words that are printed for it.

use std::{
    ffi::OsStr,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Command, Stdio},
};

use proptest::{collection::vec, prelude::*, sample::select};

use crate::{fuzz::runner, model::path::shell_word};

/// Names in a run of a shell, which costs a thousand times what a word does.
const NAMES: usize = 500;

/// Any bytes but NUL, and often what shells take for theirs.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let special = select(&b"~=:$`\\'\"!{},*?[]()<>|&;# \t\n-+@%^./\x1b\x7f\xff\xc3\xa4aZ0x"[..]);
    vec(prop_oneof![3 => special, 1 => 1..=255_u8], 0..24)
}

/// What a shell takes these words for.
fn evaluate(shell: &str, words: &[String]) -> Vec<Vec<u8>> {
    let mut child = Command::new(shell)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|why| panic!("{shell}: {why}"));
    let script = format!("printf '%s\\0' {}\n", words.join(" "));
    let mut input = child.stdin.take().unwrap();
    // Both ends may fill their pipe: the shell answers while it is written to.
    let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{shell} ends with {}", output.status);
    let mut names: Vec<Vec<u8>> =
        output.stdout.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    assert_eq!(names.pop(), Some(Vec::new()));
    names
}

fn hold(shell: &str, names: &[Vec<u8>]) {
    let words: Vec<String> =
        names.iter().map(|name| shell_word(Path::new(OsStr::from_bytes(name)))).collect();
    for word in &words {
        assert!(word.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{word:?}");
    }
    let seen = evaluate(shell, &words);
    for ((name, word), seen) in names.iter().zip(&words).zip(&seen) {
        assert_eq!(seen, name, "{shell} reads {word}");
    }
    assert_eq!(seen.len(), names.len());
}

#[test]
fn bash_takes_every_word_for_the_name_that_it_was_made_of() {
    runner(40)
        .run(&vec(name(), 1..NAMES), |names| {
            hold("bash", &names);
            Ok(())
        })
        .unwrap();
}

/// Only what has odd bytes is in a form that not every shell knows.
#[test]
fn every_shell_understands_the_words_of_plain_names() {
    let plain = name().prop_map(|mut name| {
        name.retain(|byte| *byte == b' ' || (byte.is_ascii_graphic() && *byte != b'\''));
        name
    });
    runner(20)
        .run(&vec(plain, 1..NAMES), |names| {
            hold("sh", &names);
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_was_found_is_held() {
    let found: [&[u8]; 4] = [b"", b"a=~", b"a=b:~root", b"~"];
    hold("bash", &found.map(<[u8]>::to_vec));
}
