//! A volume with very many directories: dockerd deletes it, and holds the lock of its volume store meanwhile.
//! `PODSTUCK_STORM=1000000` makes a million of them, and holds what is said of the end against the end.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    thread::{self, sleep},
    time::Duration,
};

use jiff::Timestamp;
use nix::sys::stat::Mode;
use podstuck_tests::{diagnose, of_type, skip, summary, watch};
use serde_json::Value;

use super::{Ending, Runtimes, assert_actor, assert_complete, counted};

/// In each of these there are as many as it takes.
const ABOVE: u32 = 256;
const ENTRIES: u32 = 200_000;
/// Of one processor, in percent, so that the deletion takes long also on a fast disk.
const SLOW: u32 = 12;

/// A process in a control group that gets little of a processor.
struct Slowed {
    group: PathBuf,
}

impl Slowed {
    /// `None` where no such group can be made.
    fn new(pid: u32) -> Option<Self> {
        let name = format!("podstuck-slow-{}", std::process::id());
        let (period, quota) = (100_000, SLOW * 1000);
        let first = Path::new("/sys/fs/cgroup/cpu").join(&name);
        if fs::create_dir(&first).is_ok() {
            let this = Self { group: first };
            fs::write(this.group.join("cpu.cfs_period_us"), period.to_string()).ok()?;
            fs::write(this.group.join("cpu.cfs_quota_us"), quota.to_string()).ok()?;
            fs::write(this.group.join("cgroup.procs"), pid.to_string()).ok()?;
            return Some(this);
        }
        let second = Path::new("/sys/fs/cgroup").join(&name);
        fs::create_dir(&second).ok()?;
        let this = Self { group: second };
        fs::write(this.group.join("cpu.max"), format!("{quota} {period}")).ok()?;
        fs::write(this.group.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(this)
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        let all = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for pid in all.lines() {
            let _ = fs::write(self.group.with_file_name("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.group);
    }
}

/// Directories in directories, made by two threads.
fn fill(volume: &Path, entries: u32) {
    thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                for above in (half..ABOVE).step_by(2) {
                    let above = volume.join(above.to_string());
                    fs::create_dir(&above).unwrap();
                    for n in 0..entries / ABOVE {
                        nix::unistd::mkdir(&above.join(n.to_string()), Mode::S_IRWXU).unwrap();
                    }
                }
            });
        }
    });
}

fn storm(answer: &Value) -> Option<&Value> {
    let causes = answer["causes"].as_array()?.iter();
    causes.into_iter().find(|cause| cause["id"] == "docker-volume-unlink-storm")
}

#[test]
fn who_waits_for_a_volume_with_very_many_directories() {
    let asked: Option<u32> = env::var("PODSTUCK_STORM").ok().map(|it| it.parse().unwrap());
    let entries = asked.unwrap_or(ENTRIES);
    let Some(runtimes) = Runtimes::start_with_inodes(200_000 + entries) else { return };
    runtimes.run_docker("storm");
    let (volume, id) = (runtimes.volume("storm"), runtimes.inspect("storm", "{{.Id}}"));
    fill(&volume, entries);

    let Some(_slowed) = Slowed::new(runtimes.dockerd()) else {
        return skip("no control group for processors can be made");
    };
    let mut live = watch(&["--path", volume.parent().unwrap().to_str().unwrap()]);
    let client = |args: &[&str]| Ending::start(runtimes.docker(args).stdout(Stdio::null()));
    let mut remove = client(&["rm", "-f", "-v", "storm"]);
    let found = live.wait_for("the storm", |line| {
        line["type"] == "finding" && line["id"] == "docker-volume-unlink-storm"
    });
    let waiting = [client(&["volume", "create", "another"]), client(&["volume", "ls"])];
    assert_eq!((&found["container"], &found["container_name"]), (&id.into(), &"storm".into()));
    assert_actor(&found, "dockerd", runtimes.dockerd());
    assert_eq!((&found["severity"], &found["blocks_deletion"]), (&"info".into(), &false.into()));
    assert_eq!(found["volume"]["path"], volume.parent().unwrap().to_str().unwrap());
    // A late answer says as much, but for the container: that is deleted before its volume.
    sleep(Duration::from_secs(4));
    let late = diagnose(&["--path", volume.to_str().unwrap(), "--timeout", "25s"]);
    let (lines, _) = late.finish();
    let answer = (*of_type(&lines, "diagnosis").last().unwrap()).clone();
    let late = storm(&answer).unwrap_or_else(|| panic!("{answer:#}"));
    let facts = late["evidence"].to_string();
    for (client, words) in waiting.iter().zip(["docker volume create", "docker volume ls"]) {
        let words = format!("{words} (pid {}, for ", client.id());
        assert!(facts.contains(&words), "{words}: {facts}");
    }
    assert!(!facts.contains("another"), "a name may be a secret: {facts}");
    assert!(remove.wait().unwrap().success());
    let end = Timestamp::now();
    for mut client in waiting {
        assert!(client.wait().unwrap().success());
    }
    let is_over = |line: &Value| line["type"] == "finding" && line["state"] == "cleared";
    let cleared = live.wait_for("its end", is_over);
    let (lines, _) = live.stop();
    // Beside them `_data`, and what holds it. Go tries each first as a file: the root of a removal twice.
    let all = u64::from(ABOVE + entries / ABOVE * ABOVE) + 2;
    assert_eq!(cleared["count"], all, "{cleared:#}");
    assert_eq!(counted(&lines, "unlinkat+AT_REMOVEDIR", "ok"), all, "{:#}", summary(&lines));
    assert_eq!(counted(&lines, "unlinkat", "EISDIR"), all + 1, "{:#}", summary(&lines));
    assert_complete(&lines);
    let progress = of_type(&lines, "progress").into_iter();
    let half =
        progress.into_iter().find(|it| it["deleted"].as_u64() >= Some(u64::from(entries) / 2));
    let half = half.unwrap();
    let at: Timestamp = half["time"].as_str().unwrap().parse().unwrap();
    let (eta, is) = (half["eta_s"].as_f64(), end.duration_since(at).as_secs_f64());
    println!("half-way: said {eta:?} s, was {is:.1} s");
    if asked.is_some() {
        assert!(eta.is_some_and(|eta| (eta - is).abs() <= 0.25 * is), "{half:#}");
    }
}
