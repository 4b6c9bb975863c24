//! The summary as tables, for a terminal and for Markdown.

use std::fmt::Write;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use super::stats::Summary;
use super::tracer::Tracer;
use super::workload::Workload;

const HEADER: [&str; 12] = [
    "tracer",
    "calls a round",
    "ns per call",
    "min-max",
    "on CPU, ns",
    "x none",
    "quartiles",
    "programs, ns per call",
    "CPU s per 1M calls",
    "RSS MiB",
    "seen of truth, lost",
    "attach, detach ms",
];

const NOTES: &str = "\
\"ns per call\" is the median over the rounds, by the clock; \"on CPU\" is the calling thread's \
own CPU time, which other load on the machine disturbs less, with its ratio to no tracer. \"x \
none\" is the median of the ratios to no tracer in the same round, by the clock, with its \
quartiles. No difference smaller than that of \"none again\" means anything. The time of the \
programs comes from rounds of their own, in which the kernel measures it. \"CPU s\" is the \
tracer's user space while the workload ran. bpftrace counts the calls of the whole machine, so \
it may see more than the truth; podstuck's counts are those of the pod. strace and perf trace \
follow the workload only, and are measured on fewer calls; by the clock, they also make it wait.";

/// All tables, with the description of the machine and explanations.
pub(crate) fn document(machine: &[String], rounds: u32, summaries: &[Section]) -> String {
    let mut text = format!("{rounds} rounds. {}.\n", machine.join("; "));
    for section in summaries {
        // Writing to a string does not fail.
        let _ = write!(text, "\n**{}**\n\n", section.workload.title());
        let _ = match &section.missing {
            Some(missing) => writeln!(text, "not measured: {missing}"),
            None => writeln!(text, "{}", section.table()),
        };
    }
    let _ = write!(text, "\n{NOTES}\n");
    text
}

/// A workload with its tracers.
pub(crate) struct Section {
    pub(crate) workload: Workload,
    /// Why the workload was not measured.
    pub(crate) missing: Option<String>,
    pub(crate) tracers: Vec<(Tracer, Result<Summary, &'static str>)>,
}

impl Section {
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN).set_header(HEADER);
        for (tracer, summary) in &self.tracers {
            let cells = match summary {
                Ok(summary) => cells(summary),
                Err(reason) => vec![(*reason).to_owned()],
            };
            table.add_row(std::iter::once(tracer.title().to_owned()).chain(cells));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

fn cells(summary: &Summary) -> Vec<String> {
    let calls = if summary.fewest_calls == summary.most_calls {
        summary.most_calls.to_string()
    } else {
        format!("{}-{}", summary.fewest_calls, summary.most_calls)
    };
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let number =
        |value: Option<f64>, digits: usize| or_dash(value.map(|value| format!("{value:.digits$}")));
    let seen = summary.seen.map(|seen| {
        let lost = summary.lost_calls.unwrap_or(0) + summary.lost_events.unwrap_or(0);
        format!("{seen} of {}, {lost}", summary.truth)
    });
    vec![
        calls,
        number(summary.ns_median, 0),
        or_dash(summary.ns.map(|ns| format!("{:.0}-{:.0}", ns.min, ns.max))),
        or_dash(
            summary
                .cpu_ns_median
                .zip(summary.cpu_ratio_median)
                .map(|(ns, ratio)| format!("{ns:.0} ({ratio:.2}x)")),
        ),
        number(summary.ratio_median, 2),
        or_dash(summary.ratio.map(|ratio| format!("{:.2}-{:.2}", ratio.lower, ratio.upper))),
        number(summary.program_ns, 0),
        number(summary.cpu_s_per_million, 2),
        number(summary.rss_mib, 1),
        or_dash(seen),
        or_dash(summary.attach_ms.zip(summary.detach_ms).map(|(a, d)| format!("{a:.0}, {d:.0}"))),
    ]
}
