//! How long it takes to be there and to be gone again. Nothing is asserted about the times: they are
//! printed, and `cargo xtask vm test` shows them for each kernel.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use podstuck_tests::{
    holder_of, requires, root_and_btf, slowdown, summary, wait_until_gone, watch,
};

/// Between two calls: also the resolution of what is measured.
const PAUSE: Duration = Duration::from_millis(2);

#[test]
fn start_to_first_count_and_ctrl_c_to_detached() {
    requires!(root_and_btf());
    let top = tempfile::tempdir_in("/dev/shm").unwrap();
    let nothing = top.path().join("nothing");
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        // When each call was made; all that were made once the probes are in are counted.
        let caller = scope.spawn(|| {
            let mut times = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::remove_dir(&nothing);
                times.push(begun.elapsed());
                thread::sleep(PAUSE);
            }
            times
        });
        let watching = watch(&["--path", top.path().to_str().unwrap()]);
        thread::sleep(PAUSE * 50);
        drop(stopping);
        let times = caller.join().unwrap();
        let (holder, asked) = (holder_of(watching.pid()), Instant::now());
        watching.signal(Signal::SIGINT);
        let (lines, _) = watching.finish();
        let ended = asked.elapsed();
        holder.into_iter().for_each(wait_until_gone);
        let detached = asked.elapsed();
        let counted = summary(&lines)["calls"].as_u64().unwrap();
        let first = times[times.len() - usize::try_from(counted).unwrap()];
        assert!(counted > 0 && first > Duration::ZERO);
        println!(
            "measured: first count {} ms after the start, ended {} ms after Ctrl-C, its probes gone after {} ms, \
             getppid {} ns",
            first.as_millis(),
            ended.as_millis(),
            detached.as_millis(),
            getppid_ns(),
        );
    });
}

/// A process that deletes nothing, beside a node that is watched.
#[test]
fn what_a_bystander_pays() {
    requires!(root_and_btf());
    let rounds = if slowdown() > 1 { 3 } else { 10 };
    let top = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut medians = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        medians[0].push(getppid_ns());
        let watching = watch(&["--path", top.path().to_str().unwrap()]);
        medians[1].push(getppid_ns());
        let (lines, _) = watching.stop();
        assert_eq!(summary(&lines)["calls"], 0);
        medians[2].push(getppid_ns());
    }
    let [before, beside, after] = medians.map(|mut times: Vec<u128>| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    println!(
        "measured: getppid {before} ns before, {beside} ns beside podstuck, {after} ns after it \
         (medians of {rounds} rounds)",
    );
}

/// Ends the caller also when the test fails: its scope waits for it.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a system call that does nothing takes.
fn getppid_ns() -> u128 {
    const CALLS: u32 = 200_000;
    let begun = Instant::now();
    for _ in 0..CALLS {
        nix::unistd::getppid();
    }
    begun.elapsed().as_nanos() / u128::from(CALLS)
}
