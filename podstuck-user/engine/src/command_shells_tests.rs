//! Commands pasted into interactive shells on a terminal, with history and line editing on.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs,
    io::Write,
    os::unix::{ffi::OsStrExt, fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use podstuck_testing::skip;

use super::{Process, View, kill};
use crate::model::object::FileId;

/// The command line of each shell, so that it reads and saves no settings; and whether it supports bracketed paste.
const SHELLS: [(&str, &str, bool); 5] = [
    ("bash", "bash --norc --noprofile -i", true),
    ("zsh", "zsh -f -i", true),
    ("dash", "dash -i", false),
    ("busybox", "busybox ash -i", false),
    ("fish", "fish --no-config -i", true),
];
/// Names that a tenant may choose: with characters that are special for these shells, a terminal, printf and xargs.
const NAMES: [&[u8]; 26] = [
    b"plain-1.x",
    b"-rf",
    b"a b",
    b"k~v=:@%,+",
    b"$(touch PWNED)",
    b"`touch PWNED`",
    b"';touch PWNED;'",
    b"\\'; touch PWNED; #!#",
    b"\\'!#",
    b"!!",
    b"!touch",
    b"!$ !* !?touch?",
    b"^touch^rm^",
    b"a\ntouch PWNED\n",
    b"a\rtouch PWNED\r",
    b"\x1b[201~\rtouch PWNED\r",
    b"\x1b]0;x\x07",
    b"\t\t",
    b"\x03\x04\x15\x1a",
    b"\xff\xfe\xc3",
    "日本 é\u{202e}".as_bytes(),
    b"%s%n%d\\c\\0",
    b"(touch PWNED) {a,b} ~ %self",
    b"$HOME \"$(touch PWNED)\" $'x'",
    b"*?[a]",
    b"#;&|<>",
];

/// A shell on a terminal.
struct Session {
    script: Child,
    keys: ChildStdin,
    top: PathBuf,
    brackets: bool,
    count: u32,
}

impl Session {
    fn start(shell: &str, brackets: bool, top: &Path) -> Self {
        let home = top.join("home");
        fs::create_dir_all(&home).unwrap();
        let mut script = Command::new("script");
        script.args([
            "--quiet",
            "--flush",
            "--command",
            &format!("stty cols 200 rows 50; exec {shell}"),
        ]);
        let screen = top.join("screen");
        script.arg(&screen).current_dir(&home).process_group(0);
        for (name, value) in [("HOME", home.as_os_str()), ("HISTFILE", "history".as_ref())] {
            script.env(name, value);
        }
        script.env("TERM", "xterm").env("LC_ALL", "C.UTF-8").env("XDG_DATA_HOME", &home);
        script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut script = script.spawn().unwrap();
        let keys = script.stdin.take().unwrap();
        let mut new = Self { script, keys, top: top.into(), brackets: false, count: 0 };
        new.wait();
        new.brackets = brackets;
        new
    }

    fn type_in(&mut self, text: &str) {
        let keys =
            if self.brackets { format!("\x1b[200~{text}\x1b[201~\r") } else { format!("{text}\r") };
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until all typed commands have finished.
    fn wait(&mut self) {
        self.count += 1;
        let done = self.top.join(format!("done-{}", self.count));
        let begun = Instant::now();
        let mut asked = None;
        while !done.exists() {
            // A shell that is not ready may discard typed text.
            if asked.is_none_or(|asked: Instant| asked.elapsed() > Duration::from_secs(5)) {
                self.type_in(&format!("touch {}", done.display()));
                asked = Some(Instant::now());
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{}", self.screen());
            sleep(Duration::from_millis(20));
        }
    }

    fn run(&mut self, line: &str) {
        self.type_in(line);
        self.wait();
    }

    fn screen(&self) -> String {
        let shown = fs::read(self.top.join("screen")).unwrap_or_default();
        String::from_utf8_lossy(&shown).escape_debug().to_string()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.keys.write_all(b"\x03\rexit\r");
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn id(path: &Path) -> FileId {
    let stat = fs::symlink_metadata(path).unwrap();
    FileId { device: stat.dev(), inode: stat.ino() }
}

/// All files below a directory, except those that shells save.
fn all(directory: &Path) -> BTreeSet<OsString> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.is_dir() && name != "home" {
            found.extend(all(&path));
        }
        found.insert(path.into_os_string());
    }
    found
}

fn in_shell((program, shell, knows_brackets): (&str, &str, bool)) {
    let is_there = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|found| found.status.success())
    };
    for needed in [program, "script", "xargs"] {
        if !is_there(needed) {
            return skip(format!("there is no {needed}"));
        }
    }
    for brackets in [false, true] {
        if brackets && !knows_brackets {
            continue;
        }
        let top = tempfile::tempdir().unwrap();
        let files = top.path().join("files");
        fs::create_dir(&files).unwrap();
        let mut session = Session::start(shell, brackets, top.path());
        for name in NAMES {
            let name = OsStr::from_bytes(name);
            let above = files.join(name);
            fs::create_dir(&above).unwrap();
            for file in [name, OsStr::new("other")] {
                fs::write(above.join(file), "").unwrap();
            }
            let path = above.join(name);
            let step = |file| View::OURS.on_file("try", &path, Some(file), |it| format!("rm {it}"));
            let before = all(&files);
            let other = FileId { inode: 1, ..id(&path) };
            let wrong = step(other).line().unwrap().text;
            session.run(&wrong);
            assert_eq!(
                all(&files),
                before,
                "{program} does not look: {wrong}\n{}",
                session.screen()
            );
            let line = step(id(&path)).line().unwrap().text;
            session.run(&line);
            let mut after = before;
            after.remove(path.as_os_str());
            assert_eq!(all(&files), after, "{program}, {brackets}: {line}\n{}", session.screen());
        }
        // Only files that the shells themselves write: no command created or removed a file.
        let home: Vec<_> = all(&top.path().join("home")).into_iter().collect();
        assert!(!home.iter().any(|path| path.as_bytes().ends_with(b"PWNED")), "{home:?}");
        on_a_process(&mut session, program);
    }
}

/// A line without its own script works, too.
fn on_a_process(session: &mut Session, program: &str) {
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = child.id();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let started: u64 =
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    session.run(&kill("kill", Process::new(pid, Some(started + 1), None)).line().unwrap().text);
    let lives = child.try_wait().unwrap().is_none();
    let step = kill("kill", Process::new(pid, Some(started), None));
    session.run(&step.line().unwrap().text);
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(30) {
        sleep(Duration::from_millis(20));
    }
    let ended = child.try_wait().unwrap().is_some();
    let _ = child.kill();
    child.wait().unwrap();
    assert!(lives && ended, "{program}: {lives}, {ended}\n{}", session.screen());
    let file = session.top.join("ended");
    session.run(&format!("{} && touch {}", step.verify.unwrap(), file.display()));
    assert!(file.exists(), "{program}: {}", session.screen());
}

#[test]
fn a_command_acts_on_its_object_alone_in_bash() {
    in_shell(SHELLS[0]);
}

#[test]
fn a_command_acts_on_its_object_alone_in_zsh() {
    in_shell(SHELLS[1]);
}

#[test]
fn a_command_acts_on_its_object_alone_in_dash() {
    in_shell(SHELLS[2]);
}

#[test]
fn a_command_acts_on_its_object_alone_in_ash() {
    in_shell(SHELLS[3]);
}

#[test]
fn a_command_acts_on_its_object_alone_in_fish() {
    in_shell(SHELLS[4]);
}
