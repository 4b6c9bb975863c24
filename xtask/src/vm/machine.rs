//! The machines of the matrix.

use std::path::{Path, PathBuf};

use crate::architecture::Architecture;
use crate::vm::kernels::{COMMON_SERIES, Extent, Kernel};
use crate::vm::kind::{Kind, OciRuntime};
use crate::vm::offer::{Flavour, Name, Series};
use crate::vm::selection::{self, Tests};

/// Before this series, arm64 does not support `fentry` on kernel functions (`DYNAMIC_FTRACE_WITH_DIRECT_CALLS`).
const FENTRY_ON_ARM64: Series = (6, 4);
/// Before this series, a kprobe's program is attached by an ioctl on a perf event, which Debian's SELinux policy
/// allows to no process (`perf_event { write }`).
const LINKS_OF_KPROBES: Series = (5, 15);

/// A machine to boot.
#[derive(Clone)]
pub(super) struct Machine {
    pub(super) architecture: Architecture,
    pub(super) kernel: Name,
    pub(super) cgroup: u8,
    pub(super) btf: bool,
    pub(super) kind: Kind,
    /// Whether kprobes are tested as well.
    pub(super) with_kprobes: bool,
    pub(super) tests: Tests,
    pub(super) image: PathBuf,
    pub(super) initramfs: PathBuf,
    /// A Debian release, in place of the in-memory file system
    pub(super) disk: Option<PathBuf>,
}

impl Machine {
    /// The machines that boot these kernels, which are sorted from the oldest to the newest.
    pub(super) fn all_with(
        architecture: Architecture,
        kernels: &[(Kernel, PathBuf)],
        breadth: Breadth<'_>,
    ) -> Vec<Self> {
        let Breadth { extent, kprobes_everywhere, selinux, runtimes } = breadth;
        let (brief, whole) = (extent == Extent::Brief, extent == Extent::Whole);
        let mut machines = Vec::new();
        let names = kernels.iter().map(|(kernel, _)| kernel.name);
        let mut for_clouds = names.filter(|name| name.flavour == Flavour::Cloud);
        let oldest = for_clouds.next();
        let ends = [oldest, for_clouds.next_back().or(oldest)];
        for (kernel, initramfs) in kernels {
            let is_end = ends.contains(&Some(kernel.name));
            let machine = |cgroup, tests| Self {
                architecture,
                kernel: kernel.name,
                cgroup,
                btf: true,
                kind: Kind::Usual,
                with_kprobes: kprobes_everywhere,
                tests,
                image: kernel.image.clone(),
                initramfs: initramfs.clone(),
                disk: None,
            };
            let tests = match (is_end, brief) {
                (true, false) => selection::AT_THE_ENDS,
                (true, true) => selection::AT_THE_ENDS_IN_BRIEF,
                (false, false) => selection::BETWEEN,
                (false, true) => selection::BETWEEN_IN_BRIEF,
            };
            let with_kprobes = is_end || kprobes_everywhere;
            machines.push(Self { with_kprobes, ..machine(2, tests) });
            if !is_end {
                continue;
            }
            if !brief || Some(kernel.name) == oldest {
                machines.push(machine(1, selection::WITH_CGROUP_V1));
            }
            // These tests need time, which four machines on two processors hardly have.
            if !brief {
                let usual = machine(2, selection::AT_ONCE);
                machines.push(Self { kind: Kind::AtOnce, ..usual });
                let faults = if whole { selection::ALL_FAULTS } else { selection::FAULTS };
                let usual = machine(2, faults);
                machines.push(Self { kind: Kind::Faulty, with_kprobes: true, ..usual });
                let attacks = if whole { selection::ALL_ATTACKS } else { selection::ATTACKS };
                let usual = machine(2, attacks);
                machines.push(Self { kind: Kind::Attacked, ..usual });
            }
            if selinux {
                let usual = machine(2, selection::UNDER_SELINUX);
                machines.push(Self { kind: Kind::Confined, with_kprobes: true, ..usual });
            }
        }
        let Some(stable) = Self::that_stands_for_most(&machines).cloned() else { return machines };
        machines.extend(stable.that_refuse());
        machines.push(Self {
            kind: Kind::ManyPossible,
            tests: selection::MANY_POSSIBLE,
            ..stable.clone()
        });
        if let Some(disk) = runtimes {
            machines.extend(stable.with_runtimes(disk));
        }
        machines
    }

    fn that_stands_for_most(machines: &[Self]) -> Option<&Self> {
        let usual = machines.iter().find(|machine| machine.kernel.series == COMMON_SERIES);
        usual.or(machines.last())
    }

    /// One machine whose kernel hides its BTF, and one whose kernel is locked down.
    fn that_refuse(&self) -> [Self; 2] {
        let like = Self { cgroup: 2, kind: Kind::Usual, with_kprobes: true, ..self.clone() };
        let locked_down =
            Self { kind: Kind::LockedDown, tests: selection::LOCKED_DOWN, ..like.clone() };
        [Self { btf: false, tests: selection::WITHOUT_BTF, ..like }, locked_down]
    }

    /// Machines with only cgroup v2, like nodes, and with newer runtimes than this machine's.
    fn with_runtimes(&self, disk: &Path) -> [Self; 2] {
        [OciRuntime::Runc, OciRuntime::Crun].map(|runtime| Self {
            cgroup: 2,
            kind: Kind::Runtimes(runtime),
            tests: selection::RUNTIMES,
            disk: Some(disk.to_path_buf()),
            ..self.clone()
        })
    }

    /// The name for people.
    pub(super) fn name(&self) -> String {
        let btf = if self.btf { "" } else { ", BTF hidden" };
        let says = self.kind.says();
        format!("Linux {}, cgroup v{}{btf}{says}", self.system(), self.cgroup)
    }

    /// Its kernel, and its architecture unless it is this machine's.
    pub(super) fn system(&self) -> String {
        if self.architecture == Architecture::own() {
            self.kernel.to_string()
        } else {
            format!("{} {}", self.kernel, self.architecture.of_debian())
        }
    }

    pub(super) fn file_name(&self) -> String {
        let btf = if self.btf { "" } else { "-no-btf" };
        let system = self.system().replace(' ', "-");
        format!("{system}-cgroup{}{btf}{}.log", self.cgroup, self.kind.file_name())
    }

    /// Whether probes are unavailable here. `fentry` requires BTF, and so do the kprobes that report directories.
    /// Debian's SELinux policy allows tracepoint events to no process.
    pub(super) fn refuses(&self, backend: &str) -> bool {
        match self.kind {
            Kind::LockedDown => true,
            Kind::Confined => backend == "tracepoint",
            _ => !self.btf && backend != "tracepoint",
        }
    }

    /// Why nothing is tested with this backend; `None` if it is tested.
    pub(super) fn leaves_out(&self, backend: &str) -> Option<&'static str> {
        let is_old =
            self.architecture == Architecture::Arm64 && self.kernel.series < FENTRY_ON_ARM64;
        match backend {
            // These machines test the results made of calls, not the way calls are observed.
            _ if self.disk.is_some() => (backend != "fentry").then_some("elsewhere"),
            "fentry" if is_old => Some("not there"),
            "kprobe" if !self.with_kprobes => Some("elsewhere"),
            "kprobe" if self.kind == Kind::Confined && self.kernel.series < LINKS_OF_KPROBES => {
                Some("refused")
            }
            _ => None,
        }
    }
}

/// How many of the long tests are run.
#[derive(Clone, Copy)]
pub(super) struct Breadth<'a> {
    pub(super) extent: Extent,
    /// Whether kprobes are tested in all machines, or only where their hooks differ: on the oldest and the newest
    /// kernel, with many calls in flight, and without BTF.
    pub(super) kprobes_everywhere: bool,
    /// Whether there are machines that enforce SELinux, which need a policy.
    pub(super) selinux: bool,
    /// The disk of the machines with real runtimes, if there are any.
    pub(super) runtimes: Option<&'a Path>,
}
