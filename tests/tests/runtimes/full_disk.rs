//! A data root with no room left: what that keeps, and what it does not.

use std::{fs, path::PathBuf};

use podstuck_tests::{of_type, watch};

use super::{Runtimes, by_container::ask, daemons::program, output};

/// What takes all the room that there is.
struct Filled(PathBuf);

impl Filled {
    fn new(runtimes: &Runtimes) -> Self {
        let file = runtimes.top().join("data/filled");
        // The last of it is not had in large pieces.
        for size in ["64M", "1M", "4K"] {
            for n in 0.. {
                let part = file.with_extension(format!("{size}-{n}"));
                let mut fill = program("fallocate");
                if !fill.args(["-l", size]).arg(&part).output().unwrap().status.success() {
                    let _ = fs::remove_file(part);
                    break;
                }
            }
        }
        Self(file)
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.0.parent().unwrap()).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("filled") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[test]
fn a_data_root_that_is_full_is_reported_and_keeps_no_container() {
    let Some(runtimes) = Runtimes::start_with_inodes(20_000) else { return };
    for name in ["one", "two"] {
        runtimes.run_docker(name);
    }
    let filled = Filled::new(&runtimes);
    let refused = runtimes.docker(&["run", "-d", "--network", "none", "bb:1"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("no space left on device"), "{said}");

    let mut live = watch(&[]);
    let data = runtimes.top().join("data");
    let is_ours = |line: &serde_json::Value, state: &str| {
        line["type"] == "finding"
            && line["id"] == "disk-full-runtime"
            && line["state"] == state
            && line["call"]["path"]
                .as_str()
                .is_some_and(|path| path.starts_with(data.to_str().unwrap()))
    };
    let found = live.wait_for("a full disk", |line| is_ours(line, "new"));
    assert_ne!(found["certainty"], "firm", "it keeps nothing from being deleted by itself");
    // Removing needs no room.
    output(runtimes.docker(&["rm", "-f", "-v", "one"]));
    let (answer, _) = ask("two", &["--timeout", "8s"]);
    assert_eq!(answer["containers"][0]["stage"], "running", "{answer:#}");
    drop(filled);
    live.wait_for("room again", |line| is_ours(line, "cleared"));
    output(runtimes.docker(&["rm", "-f", "-v", "two"]));
    let (lines, _) = live.stop();
    let others =
        of_type(&lines, "finding").into_iter().filter(|it| it["id"] != "disk-full-runtime");
    let ours = others.filter(|it| it.to_string().contains(runtimes.top().to_str().unwrap()));
    assert_eq!(ours.count(), 0, "{lines:#?}");
}
