//! `cargo xtask fuzz`: runs the parsers of foreign input on more inputs than the tests do. See the crate
//! podstuck-fuzz.

use std::time::Duration;

use anyhow::Result;

use crate::setup;
use crate::workspace::Workspace;
use podstuck_process as process;

/// What to try, and how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only targets whose name begins so, such as `mountinfo`: the folders of podstuck-user/corpus
    #[arg(default_value = "")]
    target: String,
    /// How long to try each target, such as 90s, 10m or 1h; as many run at once as there are CPUs
    #[arg(long = "for", default_value = "10m", value_parser = duration)]
    time: Duration,
    /// By the tests as `cargo xtask test` builds them: nothing is compiled again, and far fewer inputs are tried
    #[arg(long)]
    unoptimized: bool,
}

/// Runs the targets. A failure is returned as an error and added to the target's corpus.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    setup::run(workspace)?;
    // Optimized, with the checks of an unoptimized build. For the whole workspace, cargo reuses its artefacts.
    let mut test = workspace.cargo(["test", "--workspace", "--lib"]);
    if !options.unoptimized {
        test.args(["--profile", "fuzz"]);
    }
    test.args(["--", "--nocapture", &format!("tests::fuzz_{}", options.target)]);
    test.env("PODSTUCK_FUZZ_FOR", options.time.as_secs().to_string());
    process::run(&mut test)
}

fn duration(text: &str) -> Result<Duration, String> {
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        _ => return Err("a number and s, m or h are wanted".into()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| format!("{text} is no time"))?;
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(|| format!("{text} is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_with_its_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for wrong in
            ["", "s", "5", "-1s", "5d", "ä", "99999999999999999999h", "18446744073709551615h"]
        {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
