//! `cargo xtask vm`: the tests on other kernels, in virtual machines.

mod apparmor;
mod disk;
mod guest;
mod initramfs;
mod kernels;
mod kind;
mod machine;
mod matrix;
mod modules;
mod offer;
mod programs;
mod report;
mod selection;
mod selinux;
mod table;
mod userland;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::architecture::Architecture;
use crate::vm::kernels::{Extent, Kernel, Wanted};
use crate::vm::machine::{Breadth, Machine};
use crate::vm::userland::Userland;
use crate::workspace::Workspace;
use crate::{daemons, setup};
use podstuck_process as process;
use podstuck_process::phases::Phases;

/// Required programs, each with its Debian package.
const NEEDED: [(&str, &str); 7] = [
    ("busybox", "busybox-static"),
    ("modprobe", "kmod"),
    ("mkfs.ext4", "e2fsprogs"),
    ("dmsetup", "dmsetup"),
    ("setpriv", "util-linux"),
    ("runc", "runc"),
    ("xz", "xz-utils"),
];

/// Debian's package of the emulator.
const fn emulators_package(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "qemu-system-x86",
        Architecture::Arm64 => "qemu-system-arm",
    }
}

/// All of podstuck's attachment methods.
const BACKENDS: [&str; 3] = ["tracepoint", "fentry", "kprobe"];

/// What to do in virtual machines.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Run the tests on Debian's kernels: in brief what fails first where hooks differ; all of them on chosen kernels or
    /// backends, of a filter, or of the whole matrix
    Test(Options),
    /// Only build and download what that takes
    Prepare {
        /// Only these kernels, as in 6.12, 6.12-plain and 6.12-rt; else those that are tested in brief
        #[arg(long, value_name = "SERIES", num_args = 1..)]
        kernel: Vec<String>,
        /// For these processors; else for this machine's
        #[arg(long, value_name = "ARCHITECTURE")]
        arch: Option<Architecture>,
    },
}

/// Which machines.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these kernels, as in 6.12, 6.12-plain and 6.12-rt; else 5.10, 6.1, 6.12 and Debian's two newest series,
    /// and on arm64 6.1, 6.12 and the newest one
    #[arg(long, value_name = "SERIES", num_args = 1..)]
    kernel: Vec<String>,
    /// All tests, also on kernels of Debian's stable releases for any machine, and with PREEMPT_RT; all attacks, kprobes
    /// everywhere, and SELinux
    #[arg(long, conflicts_with = "kernel")]
    whole: bool,
    /// Machines with these processors; else with this machine's
    #[arg(long, value_name = "ARCHITECTURE")]
    arch: Option<Architecture>,
    /// Only these backends, as in tracepoint; else all
    #[arg(long, num_args = 1..)]
    backend: Vec<String>,
    /// Only tests whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Only machines that are called so, as in `faults` or `crun`
    #[arg(long, value_name = "PART")]
    machine: Option<String>,
    /// How many machines run at a time; else as many as there are processors and memory for
    #[arg(long, value_name = "NUMBER")]
    at_once: Option<usize>,
}

impl Options {
    /// Brief, unless something is selected.
    fn extent(&self) -> Extent {
        let is_chosen =
            !self.kernel.is_empty() || !self.backend.is_empty() || self.filter.is_some();
        match (self.whole, is_chosen) {
            (true, _) => Extent::Whole,
            (false, true) => Extent::Usual,
            (false, false) => Extent::Brief,
        }
    }

    /// Whether there are machines with SELinux and with real runtimes. The tools for the policy run on this machine,
    /// and Debian's are for this architecture.
    fn has_more(&self, architecture: Architecture) -> bool {
        self.whole && architecture == Architecture::own() && architecture == Architecture::Amd64
    }
}

/// Runs the command.
pub(crate) fn run(workspace: &Workspace, command: &Command) -> Result<()> {
    let mut phases = Phases::default();
    match command {
        Command::Test(options) => test(workspace, options, &mut phases),
        Command::Prepare { kernel, arch } => {
            let architecture = arch.unwrap_or(Architecture::own());
            let wanted = wanted(kernel, Extent::Brief);
            prepare(workspace, architecture, &wanted, false, &mut phases)
                .map(|_| println!("{phases}"))
        }
    }
}

fn wanted(kernels: &[String], extent: Extent) -> Wanted<'_> {
    if kernels.is_empty() { Wanted::All(extent) } else { Wanted::These(kernels) }
}

/// Returns each kernel with the archive of its file system.
fn prepare(
    workspace: &Workspace,
    architecture: Architecture,
    wanted: &Wanted<'_>,
    selinux: bool,
    phases: &mut Phases,
) -> Result<Vec<(Kernel, PathBuf)>> {
    require_programs(architecture)?;
    let folder = folder(workspace, architecture);
    process::folder::create(&folder)?;
    phases.run("set-up", || setup::run(workspace))?;
    let kernels = phases.run("kernels", || kernels::get(&folder, architecture, wanted))?;
    let userland = phases.run("tools", || Userland::get(&folder, architecture))?;
    let tests = selection::programs();
    let build = || programs::build(workspace, architecture, &tests);
    let programs = phases.run("building", build)?;
    // Foreign test programs cannot be queried here, but they contain the same tests.
    if architecture == Architecture::own() {
        programs.have(&selection::all())?;
    }
    let mut files = initramfs::common_files(&programs, &userland)?;
    // The tools for policies run on this machine, and Debian's are for its architecture.
    if architecture == Architecture::own() {
        let policy = phases.run("profiles", || apparmor::policy(workspace, &folder))?;
        initramfs::add(&mut files, "apparmor/policy", &policy)?;
    }
    if selinux {
        let policy = phases.run("policy", || selinux::policy(&folder))?;
        initramfs::add(&mut files, "selinux/policy", &policy)?;
    }
    let archived = |kernel: Kernel| {
        let initramfs = folder.join(format!("{}.cpio", kernel.name));
        initramfs::write(&files, &kernel.modules, &initramfs)?;
        Ok((kernel, initramfs))
    };
    kernels.into_iter().map(archived).collect()
}

fn test(workspace: &Workspace, options: &Options, phases: &mut Phases) -> Result<()> {
    let architecture = options.arch.unwrap_or(Architecture::own());
    let wanted = wanted(&options.kernel, options.extent());
    let more = options.has_more(architecture);
    let kernels = prepare(workspace, architecture, &wanted, more, phases)?;
    let folder = folder(workspace, architecture);
    let runtimes = || disk::image(&daemons::unpacked(workspace, daemons::SUITE)?, &folder);
    let runtimes = if more { Some(phases.run("runtimes", runtimes)?) } else { None };
    let logs = folder.join("logs");
    process::folder::fresh(&logs)?;
    let breadth = Breadth {
        extent: options.extent(),
        kprobes_everywhere: options.whole || !options.backend.is_empty(),
        selinux: more,
        runtimes: runtimes.as_deref(),
    };
    let mut machines = Machine::all_with(architecture, &kernels, breadth);
    let backends = if options.backend.is_empty() {
        BACKENDS.map(str::to_owned).to_vec()
    } else {
        options.backend.clone()
    };
    machines.retain(|machine| {
        let is_wanted = options.machine.as_ref().is_none_or(|part| machine.name().contains(part));
        is_wanted && backends.iter().any(|backend| machine.leaves_out(backend).is_none())
    });
    let plan = matrix::Plan {
        backends: &backends,
        filter: options.filter.as_deref(),
        at_once: options.at_once,
        logs: &logs,
    };
    let stop = note_interrupts()?;
    let results = phases.run("machines", || matrix::run(&machines, &plan, &stop))?;
    println!("\n{}", table::render(&results, &backends));
    println!("Console of each machine: {}", logs.display());
    let unsteady = table::unsteady(&results);
    print!("{unsteady}");
    println!("{phases}\n{}", table::totals(&results));
    if !results.iter().all(|result| result.is_good(&backends, plan.filter)) {
        bail!("not everything passed on every kernel");
    }
    if results.iter().all(|result| result.report.backends.iter().all(|ran| ran.tests.is_empty())) {
        bail!("no machine has a test of this name");
    }
    unsteady.verdict()
}

/// From now on, notes Ctrl-C instead of obeying at once, so that no machine outlives this process.
fn note_interrupts() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends this process immediately; the machines end with it.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("cannot handle Ctrl-C")?;
    }
    Ok(stop)
}

/// The folder of everything that is made or downloaded for these machines.
fn folder(workspace: &Workspace, architecture: Architecture) -> PathBuf {
    let folder = workspace.target.join("vm");
    if architecture == Architecture::own() { folder } else { folder.join(architecture.of_debian()) }
}

fn require_programs(architecture: Architecture) -> Result<()> {
    let emulator = guest::emulator(architecture);
    let missing: Vec<&str> = NEEDED
        .into_iter()
        .chain([(&*emulator, emulators_package(architecture))])
        .filter(|(program, _)| process::find(program).is_none())
        .map(|(_, package)| package)
        .collect();
    if !missing.is_empty() {
        let missing = missing.join(" ");
        bail!(
            "virtual machines need more programs; on Debian, as root: \
             `apt-get install --no-install-recommends {missing}`"
        );
    }
    Ok(())
}
