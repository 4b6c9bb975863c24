//! `/metrics`: the watch's metrics, as the watch has written them, and the agent's own.

use podstuck_exposition::{Families, labels};

use crate::board::Board;

/// Maximum number of stuck pods with a series each. Further pods are only counted.
const PODS: usize = 200;

/// The agent's state at the time of a scrape.
pub(crate) struct State<'a> {
    /// The stuck pods.
    pub(crate) board: &'a Board,
    /// Whether the watch is healthy.
    pub(crate) is_well: bool,
    /// Lines that were not printed.
    pub(crate) lines_lost: u64,
    /// Writes that failed.
    pub(crate) api_errors: u64,
    /// Process id of the watch.
    pub(crate) watch: Option<u32>,
}

/// The agent's own metrics.
pub(crate) fn own(state: &State<'_>) -> Families {
    let mut families = Families::default();
    let stuck: Vec<_> = state.board.stuck().collect();
    let info = stuck.iter().take(PODS).map(|it| {
        let labels = labels([
            ("cause", it.cause.as_str()),
            ("certainty", it.certainty.word()),
            ("namespace", &it.pod.namespace),
            ("pod", &it.pod.name),
            ("stage", &it.stage),
        ]);
        (labels, 1.0)
    });
    let help = "Pods whose deletion is stuck, by cause: 1 while it lasts.";
    families.gauges("podstuck_finding_info", help, info);
    families.gauge(
        "podstuck_findings_left_out",
        "Findings that have no series of their own in podstuck_finding_info.",
        stuck.len().saturating_sub(PODS) as f64,
    );
    families.gauge(
        "podstuck_watch_healthy",
        "Whether the probes count the agent's own deletions.",
        f64::from(u8::from(state.is_well)),
    );
    families.gauge(
        "podstuck_events_pending",
        "Findings that wait for their Event.",
        state.board.pending() as f64,
    );
    let counts = state.board.counts();
    let suppressed =
        [("outrun", counts.outrun), ("refused", counts.refused), ("no-room", counts.dropped)];
    families.counters(
        "podstuck_events_suppressed_total",
        "Findings without an Event: ended before it was written, refused by the API server, or too many.",
        suppressed.map(|(why, value)| (labels([("why", why)]), value as f64)),
    );
    families.counter(
        "podstuck_events_written_total",
        "Writes to the API server.",
        counts.written as f64,
    );
    families.counter(
        "podstuck_api_errors_total",
        "Writes that the API server refused or did not answer.",
        state.api_errors as f64,
    );
    families.counter(
        "podstuck_log_lines_lost_total",
        "Lines that could not be written to standard output.",
        state.lines_lost as f64,
    );
    processes(&mut families, state.watch);
    let version = labels([("version", env!("CARGO_PKG_VERSION"))]);
    families.gauges("podstuck_build_info", "The version of the agent.", [(version, 1.0)]);
    families
}

/// CPU time and memory of the watch and of the agent.
fn processes(families: &mut Families, watch: Option<u32>) {
    let all = [("agent", Some(std::process::id())), ("watch", watch)];
    let (mut cpu, mut memory) = (Vec::new(), Vec::new());
    for (name, pid) in all {
        let process = pid.and_then(|pid| procfs::process::Process::new(pid as i32).ok());
        let Some(stat) = process.and_then(|process| process.stat().ok()) else { continue };
        let labels = labels([("process", name)]);
        let seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
        cpu.push((labels.clone(), seconds));
        memory.push((labels, (stat.rss * procfs::page_size()) as f64));
    }
    let help = "CPU time of podstuck's own processes.";
    families.counters("podstuck_process_cpu_seconds_total", help, cpu);
    let help = "Resident memory of podstuck's own processes.";
    families.gauges("podstuck_process_resident_memory_bytes", help, memory);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{board::Memory, stuck::tests::finding};

    #[test]
    fn stuck_pods_have_a_series_each_up_to_a_limit() {
        let mut board = Board::new("n1", Memory::default());
        for pod in 0..PODS + 7 {
            let finding = finding(&format!("u{pod}"), "down", "new", "firm");
            board.take(&finding, Duration::ZERO, 0.0);
        }
        let (is_well, watch) = (true, None);
        let text = own(&State { board: &board, is_well, lines_lost: 1, api_errors: 2, watch });
        let text = text.text().unwrap();
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(lines("podstuck_finding_info{"), PODS);
        for line in [
            "podstuck_finding_info{cause=\"down\",certainty=\"certain\",namespace=\"shop\",pod=\"cart-u0\",stage=\"volumes\"} 1",
            "podstuck_findings_left_out 7",
            "podstuck_watch_healthy 1",
            "podstuck_events_pending 207",
            "podstuck_api_errors_total 2",
            "podstuck_log_lines_lost_total 1",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line} in {text}");
        }
        assert!(lines("podstuck_process_resident_memory_bytes{process=\"agent\"}") == 1, "{text}");
    }
}
