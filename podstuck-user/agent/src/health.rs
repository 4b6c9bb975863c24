//! Health of the watch. The agent regularly removes a file of its own, which the probes have to count. This detects a
//! watch that runs but observes nothing.

use std::{fs, io, path::PathBuf, time::Duration};

use podstuck_model::path::safe_path;

/// Maximum age of the last change of the count. The watch writes its metrics every ten seconds.
const RENEWED: Duration = Duration::from_secs(30);
/// Time from the start until the first count is required.
const BEGINS: Duration = Duration::from_secs(120);
/// The counter of the call with which the agent removes its file. arm64 has no `unlink`.
const COUNTED: &str = if cfg!(target_arch = "aarch64") {
    "podstuck_calls_total{syscall=\"unlinkat\",outcome=\"ok\""
} else {
    "podstuck_calls_total{syscall=\"unlink\",outcome=\"ok\""
};

/// The observed state of the watch.
#[derive(Debug)]
pub(crate) struct Health {
    file: PathBuf,
    /// Whether the watch has reported that its probes count.
    pub(crate) is_counting: bool,
    /// The last count, and the time at which it changed.
    counted: Option<(f64, Duration)>,
    removed_at: Option<Duration>,
    failed: Option<String>,
}

impl Health {
    /// For a self-test with this file.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, is_counting: false, counted: None, removed_at: None, failed: None }
    }

    /// Creates the file and removes it.
    pub(crate) fn test(&mut self, now: Duration) {
        let done = fs::write(&self.file, "").and_then(|()| fs::remove_file(&self.file));
        self.removed(done, now);
    }

    fn removed(&mut self, done: io::Result<()>, now: Duration) {
        match done {
            Ok(()) => (self.removed_at, self.failed) = (Some(now), None),
            Err(error) => self.failed = Some(error.to_string()),
        }
    }

    /// Reads the count from the watch's current metrics.
    pub(crate) fn read(&mut self, metrics: &str, now: Duration) {
        let of_call = metrics.lines().filter(|line| line.starts_with(COUNTED));
        let values = of_call.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        let counted = values.sum::<f64>();
        // A watch that was restarted counts from 0.
        if self.counted.is_none_or(|(before, _)| counted != before) && counted > 0.0 {
            self.counted = Some((counted, now));
        }
    }

    /// Checks whether the watch is healthy.
    ///
    /// # Errors
    /// Returns the reason in a sentence.
    pub(crate) fn check(&self, now: Duration) -> Result<(), String> {
        if let Some(why) = &self.failed {
            return Err(format!("{} cannot be written: {why}", safe_path(&self.file)));
        }
        match self.counted {
            None if now < BEGINS => Ok(()),
            None => Err("the probes have not counted the agent's own deletions".into()),
            Some((_, at)) if now.saturating_sub(at) <= RENEWED => Ok(()),
            Some((_, at)) => {
                let seconds = now.saturating_sub(at).as_secs();
                Err(format!(
                    "the probes have counted none of the agent's own deletions for {seconds} s"
                ))
            }
        }
    }

    /// Whether the probes count and have counted the agent's own call.
    pub(crate) const fn is_ready(&self) -> bool {
        self.is_counting && self.counted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn counted(n: u32) -> String {
        format!(
            "# TYPE podstuck_calls_total counter\n\
             podstuck_calls_total{{syscall=\"unlink\",outcome=\"ok\",component=\"other\"}} {n}\n\
             podstuck_calls_total{{syscall=\"unlink\",outcome=\"ENOENT\",component=\"other\"}} {}\n\
             podstuck_calls_total{{syscall=\"unlinkat\",outcome=\"ok\",component=\"other\"}} {}\n",
            n * 7,
            n * 9
        )
    }

    #[test]
    fn a_watch_that_counts_is_well_and_one_that_is_deaf_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let mut health = Health::new(directory.path().join("probe"));
        health.test(s(1));
        assert!(health.check(s(100)).is_ok() && !health.is_ready(), "it begins");
        assert!(health.check(s(121)).is_err());
        health.is_counting = true;
        health.read(&counted(1), s(10));
        assert!(health.is_ready());
        health.read(&counted(2), s(20));
        assert_eq!(health.check(s(50)), Ok(()));
        health.read(&counted(2), s(51));
        let why = health.check(s(51)).unwrap_err();
        assert!(why.contains("for 31 s"), "{why}");
        // A watch that was restarted has a lower count.
        health.read(&counted(1), s(52));
        assert_eq!(health.check(s(52)), Ok(()));
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_no_health() {
        let mut health = Health::new("/proc/self/none/probe".into());
        health.test(s(1));
        assert!(health.check(s(1)).unwrap_err().contains("/proc/self/none/probe"));
    }
}
