//! The measured tracers, and how each is started.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;

use super::place::{OTHER_POD, POD, Volume};
use super::tool::{BPFTRACE, PERF, STRACE, Tool};
use super::workload::Workload;

/// A tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Tracer {
    /// No tracer
    None,
    /// No tracer a second time: what differs between the two is noise
    NoneAgain,
    /// bpftrace: count by errno
    BpftraceCount,
    /// bpftrace: latency histogram by errno
    BpftraceLatency,
    /// strace -f -c, of the system call under test
    Strace,
    /// perf trace -s, of the system call under test
    PerfTrace,
    /// podstuck watch of the whole node
    Podstuck,
    /// podstuck watch of the whole node, by the program given by `--before`
    PodstuckBefore,
    /// podstuck watch of the pod concerned
    PodstuckPod,
    /// podstuck watch of another pod
    PodstuckOtherPod,
    /// podstuck, whose programs are only entered
    StepPair,
    /// podstuck, up to the clocks
    StepClocks,
    /// podstuck, up to the call between entry and return
    StepSlot,
    /// podstuck, up to the directory that the call begins at
    StepDirectory,
    /// podstuck, up to what is known of that
    StepRecall,
    /// podstuck, up to the counts
    StepCount,
}

/// The tracers of `ladder`, which measures the cost of each step.
pub(crate) const LADDER: [Tracer; 10] = [
    Tracer::None,
    Tracer::NoneAgain,
    Tracer::BpftraceLatency,
    Tracer::StepPair,
    Tracer::StepClocks,
    Tracer::StepSlot,
    Tracer::StepDirectory,
    Tracer::StepRecall,
    Tracer::StepCount,
    Tracer::Podstuck,
];

/// How a tracer is run.
pub(crate) enum Mode {
    Nothing,
    /// Runs beside the workload, which starts when the tracer prints the marker.
    Beside {
        command: Command,
        marker: &'static str,
    },
    /// Starts the workload itself: the workload's command is appended.
    Around(Command),
}

impl Tracer {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::NoneAgain => "none again (noise)",
            Self::BpftraceCount => "bpftrace, count",
            Self::BpftraceLatency => "bpftrace, latency",
            Self::Strace => "strace -f -c",
            Self::PerfTrace => "perf trace -s",
            Self::Podstuck => "podstuck, node",
            Self::PodstuckBefore => "podstuck, before",
            Self::PodstuckPod => "podstuck, this pod",
            Self::PodstuckOtherPod => "podstuck, other pod",
            Self::StepPair => "step: empty pair",
            Self::StepClocks => "step: + clocks",
            Self::StepSlot => "step: + slot",
            Self::StepDirectory => "step: + directory",
            Self::StepRecall => "step: + recall",
            Self::StepCount => "step: + count",
        }
    }

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(crate) fn is_podstuck(self) -> bool {
        matches!(
            self,
            Self::Podstuck | Self::PodstuckBefore | Self::PodstuckPod | Self::PodstuckOtherPod
        ) || self.step().is_some()
    }

    /// The step after which podstuck's programs stop, as its option value.
    pub(crate) fn step(self) -> Option<&'static str> {
        Some(match self {
            Self::StepPair => "pair",
            Self::StepClocks => "clocks",
            Self::StepSlot => "slot",
            Self::StepDirectory => "directory",
            Self::StepRecall => "recall",
            Self::StepCount => "count",
            _ => return None,
        })
    }

    /// Whether it runs BPF programs, whose run time can be measured.
    pub(crate) fn has_programs(self) -> bool {
        self.is_podstuck() || matches!(self, Self::BpftraceCount | Self::BpftraceLatency)
    }

    /// Whether it stops the workload, or is woken, at each call.
    pub(crate) fn is_slow(self) -> bool {
        matches!(self, Self::Strace | Self::PerfTrace)
    }

    /// The program that it needs, unless the project builds it.
    pub(crate) fn tool(self) -> Option<Tool> {
        match self {
            Self::BpftraceCount | Self::BpftraceLatency => Some(BPFTRACE),
            Self::Strace => Some(STRACE),
            Self::PerfTrace => Some(PERF),
            _ => None,
        }
    }

    /// How to run it. It may write files into the folder.
    pub(crate) fn mode(
        self,
        workload: Workload,
        podstuck: &Path,
        volume: &Volume,
        folder: &Path,
    ) -> Mode {
        match self {
            Self::None | Self::NoneAgain => Mode::Nothing,
            Self::BpftraceCount => bpftrace(&count_script(workload.tracepoint())),
            Self::BpftraceLatency => bpftrace(&latency_script(workload.tracepoint())),
            Self::Strace => {
                let mut command = Command::new("strace");
                command.args(["-f", "-c", "-U", "name,calls", "-e"]);
                command.arg(format!("trace={}", workload.syscall()));
                Mode::Around(with_output(command, folder))
            }
            Self::PerfTrace => {
                let mut command = Command::new("perf");
                command.args(["trace", "-s", "-e", workload.syscall()]);
                Mode::Around(with_output(command, folder))
            }
            Self::Podstuck | Self::PodstuckBefore => {
                // The counts of the whole node include other processes' deletions; the exported series contain those
                // of the pod.
                let mut command = watch(podstuck, &volume.kubelet_root);
                command.arg("--export").arg(folder.join("export"));
                beside_podstuck(command)
            }
            Self::PodstuckPod => watch_pod(podstuck, volume, POD),
            Self::PodstuckOtherPod => watch_pod(podstuck, volume, OTHER_POD),
            Self::StepPair
            | Self::StepClocks
            | Self::StepSlot
            | Self::StepDirectory
            | Self::StepRecall
            | Self::StepCount => {
                let mut command = watch(podstuck, &volume.kubelet_root);
                command.arg("--stop-after").args(self.step());
                beside_podstuck(command)
            }
        }
    }
}

fn with_output(mut command: Command, folder: &Path) -> Command {
    command.arg("-o").arg(folder.join("table"));
    command
}

/// `podstuck watch` with JSON output.
pub(crate) fn watch(podstuck: &Path, kubelet_root: &Path) -> Command {
    let mut command = Command::new(podstuck);
    command.args(["watch", "--output", "json", "--kubelet-root"]).arg(kubelet_root);
    command
}

/// podstuck prints this when it watches.
pub(crate) const PODSTUCK_MARKER: &str = r#""type":"start""#;

fn watch_pod(podstuck: &Path, volume: &Volume, pod: &str) -> Mode {
    let mut command = watch(podstuck, &volume.kubelet_root);
    command.args(["--pod-uid", pod]);
    beside_podstuck(command)
}

fn beside_podstuck(command: Command) -> Mode {
    Mode::Beside { command, marker: PODSTUCK_MARKER }
}

fn bpftrace(script: &str) -> Mode {
    // bpftrace runs BEGIN before the other probes are attached; an interval probe at the end of the script runs after
    // that.
    let marked =
        format!(r#"{script} interval:ms:20 /!@marked/ {{ @marked = 1; printf("attached\n"); }}"#);
    let mut command = Command::new("bpftrace");
    command.args(["-B", "line", "-f", "json", "-e", &marked]);
    Mode::Beside { command, marker: r#""data": "attached"# }
}

fn count_script(tracepoint: &str) -> String {
    format!("tracepoint:syscalls:sys_exit_{tracepoint} {{ @seen[args->ret] = count(); }}")
}

fn latency_script(tracepoint: &str) -> String {
    format!(
        "tracepoint:syscalls:sys_enter_{tracepoint} {{ @start[tid] = nsecs; }} \
         tracepoint:syscalls:sys_exit_{tracepoint} /@start[tid]/ \
         {{ @seen[args->ret] = hist(nsecs - @start[tid]); delete(@start[tid]); }}"
    )
}
