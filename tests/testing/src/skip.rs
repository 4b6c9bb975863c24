//! Tests that cannot run here: noted as skipped, so that they are not counted as passed.
//!
//! To the test library, a test that returns has passed, and there is no third way to end.

use std::env;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Names the file in which skipped tests are noted. `cargo xtask test` sets it and reads the file.
pub const SKIPS: &str = "PODSTUCK_TEST_SKIPS";

/// Ends the calling test, or the function that it calls, as skipped if one of the things that it
/// needs is not there. Each is a `Result` whose error is the reason; they are looked at in turn.
#[macro_export]
macro_rules! requires {
    ($($needed:expr),+ $(,)?) => {
        $(
            if let Err(reason) = $needed {
                $crate::skip(reason);
                return;
            }
        )+
    };
}

/// Notes that the calling test is skipped, at least in part, and why: on standard error, and as a
/// line `PROGRAM::TEST: REASON` in the file that [`SKIPS`] names.
pub fn skip(reason: impl Display) {
    skip_here(&crate::current(), reason);
}

/// The same for a test that runs in a thread of another name.
pub fn skip_here(test: &str, reason: impl Display) {
    // On one line, as the readers of this file expect.
    let reason = reason.to_string().replace('\n', " ");
    eprintln!("skipped: {reason}");
    if let Some(file) = env::var_os(SKIPS)
        && let Err(error) = append(Path::new(&file), &format!("{}::{test}: {reason}\n", program()))
    {
        eprintln!("cannot note it in {}: {error}", file.display());
    }
}

/// The test program, without what cargo appends to its name. Tests of two may have one name.
fn program() -> String {
    let path = env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit_once('-').map_or(name.clone(), |(name, _)| name.to_owned())
}

/// In one write, as other tests append at the same time.
fn append(file: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it comes to its end.
    fn needs(results: [Result<(), &'static str>; 2], ends: &mut u32) {
        let [first, second] = results;
        requires!(first, second);
        *ends += 1;
    }

    #[test]
    fn what_is_required_and_missing_ends_a_test_and_is_noted() {
        if crate::is_started_again() {
            let mut ends = 0;
            needs([Ok(()), Ok(())], &mut ends);
            needs([Ok(()), Err("no\ndisk")], &mut ends);
            assert_eq!(ends, 1);
            return;
        }
        let file = env::temp_dir().join(format!("podstuck-skips-{}", std::process::id()));
        let done = crate::again().env(SKIPS, &file).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(String::from_utf8_lossy(&done.stderr).contains("skipped: no disk"));
        let noted = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let name =
            "podstuck_testing::skip::tests::what_is_required_and_missing_ends_a_test_and_is_noted";
        assert_eq!(noted, format!("{name}: no disk\n"));
    }
}
