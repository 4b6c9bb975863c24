//! Runs that are recorded beside a test, and replays of them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::podstuck;

/// Where a run puts its recording and its exports.
pub struct Recorded {
    dir: TempDir,
}

impl Recorded {
    /// In a directory of its own.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    /// The options for the run.
    pub fn options(&self) -> [String; 4] {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        [
            "--record".into(),
            text(self.file()),
            "--export".into(),
            text(self.dir.path().join("live")),
        ]
    }

    /// The recording.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("run.zst")
    }

    /// Replays it, and compares every line, file and the exit status with the run's. Files that the run says are
    /// missing or old are not compared.
    pub fn assert_replayed(&self, lines: &[Value], status: Option<i32>) {
        let mut lines = lines.to_vec();
        let was_late = lines.last_mut().is_some_and(is_late);
        let (live, again) = (self.dir.path().join("live"), self.dir.path().join("again"));
        let (replayed, ended) = replay(&self.file(), &["--export", again.to_str().unwrap()]);
        assert_eq!(ended, status, "the exit status of the replay");
        for (was, is) in lines.iter().zip(&replayed) {
            assert_eq!(was, is, "a line of the run, and of its replay");
        }
        assert_eq!(lines.len(), replayed.len(), "lines");
        if was_late {
            return println!("measured: the last files took the disk a second and more");
        }
        for entry in fs::read_dir(&live).unwrap() {
            let name = entry.unwrap().file_name();
            let (was, is) = (fs::read(live.join(&name)), fs::read(again.join(&name)));
            assert_eq!(was.unwrap(), is.unwrap(), "{}", name.display());
        }
    }
}

/// Takes out of a summary that the last files are late, which is nothing that a replay says.
fn is_late(summary: &mut Value) -> bool {
    const LATE: &str = "the last files of the export directory are missing or old";
    let degraded = summary.pointer_mut("/completeness/degraded").and_then(Value::as_array_mut);
    let Some(degraded) = degraded else { return false };
    let before = degraded.len();
    degraded.retain(|what| !what.to_string().contains(LATE));
    degraded.len() < before
}

/// What a recording shows, and the exit status.
pub fn replay(file: &Path, options: &[&str]) -> (Vec<Value>, Option<i32>) {
    let mut command = Command::new(podstuck());
    command.args(["replay", "--output", "json"]).arg(file).args(options);
    let output = command.output().expect("running podstuck");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let lines = lines.map(crate::schema::read);
    (lines.collect(), output.status.code())
}
