//! One virtual machine, from its start to its end.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::architecture::Architecture;
use podstuck_process as process;

const MEMORY_MIB: u32 = 2048;
/// Two, so that two writers can run at a time.
const PROCESSORS: &str = "2";
const OF_128_POSSIBLE: &str = "2,maxcpus=128";
/// Both processors take turns in one thread. With a thread for each, QEMU 7.2 sometimes executes a breakpoint that
/// the other processor has already removed, which the kernel treats as its own fault (`Oops: int3` while probes are
/// attached).
const IN_TURN: &str = "tcg,thread=single";
/// One thread per processor. The fault above, or a processor that waits forever for the other, must end the machine,
/// so that it is run again.
const AT_ONCE: &str = "tcg,thread=multi";
const ENDS_BY_FAULTS: &str = "oops=panic softlockup_panic=1 watchdog_thresh=30";
/// All instructions that the emulator supports except CMPXCHG16B: QEMU 7.2 leaves garbage in the flags after it, and
/// an interrupt at that moment crashes the kernel with a double fault. The kernel's memory allocator uses it all the
/// time, unless the processor does not report it.
const AMD64: [&str; 2] = ["-cpu", "max,-cx16"];
/// The processor of many cloud nodes.
const ARM64: [&str; 4] = ["-machine", "virt,gic-version=3", "-cpu", "neoverse-n1"];
/// Kernel arguments: a panic ends the machine; memory is not cleared twice, which is slow in an emulator.
const ARGUMENTS: &str = "panic=-1 quiet init_on_alloc=0";
const POLL: Duration = Duration::from_millis(200);
/// Measured: a machine boots in 6 to 15 s, with three others beside it. A machine with concurrent processors may loop
/// forever instead, before the kernel's first message.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// Length of the console's output below which only the firmware has printed, in bytes.
const FIRST_WORDS: u64 = 160;

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It powered off, by itself or after a panic
    Off,
    /// It exceeded its time limit and was killed
    Deadline,
    /// It had printed nothing within the boot limit and was killed
    Silent,
    /// This process was interrupted, and the machine was killed
    Interrupted,
}

/// The emulator's program for this architecture.
pub(super) fn emulator(architecture: Architecture) -> String {
    format!("qemu-system-{}", architecture.of_rust())
}

/// The kernel's name of the serial line.
const fn console(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "ttyS0",
        Architecture::Arm64 => "ttyAMA0",
    }
}

/// The machine to boot.
pub(super) struct Guest<'a> {
    pub(super) architecture: Architecture,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// Changes to it are discarded
    pub(super) disk: Option<&'a Path>,
    /// Kernel arguments, most of them for `init.sh`
    pub(super) arguments: &'a str,
    /// Whether the processors run concurrently, not in turn
    pub(super) at_once: bool,
    /// Whether many more processors are possible than there are
    pub(super) many_possible: bool,
    /// The file for the console's output
    pub(super) log: &'a Path,
    pub(super) limit: Duration,
}

impl Guest<'_> {
    /// Memory of one machine, in bytes.
    pub(super) const MEMORY: u64 = (MEMORY_MIB as u64 + 256) << 20;

    /// Runs the machine until it ends.
    pub(super) fn run(&self, stop: &AtomicBool) -> Result<End> {
        let cannot_log = || format!("cannot write {}", self.log.display());
        let log = File::create(self.log).with_context(cannot_log)?;
        let (accelerator, more) =
            if self.at_once { (AT_ONCE, ENDS_BY_FAULTS) } else { (IN_TURN, "") };
        let processors = if self.many_possible { OF_128_POSSIBLE } else { PROCESSORS };
        let (emulator, console) = (emulator(self.architecture), console(self.architecture));
        let processor: &[&str] = match self.architecture {
            Architecture::Amd64 => &AMD64,
            Architecture::Arm64 => &ARM64,
        };
        let disk = self.disk.map(|file| {
            let file = file.display();
            ["-drive".to_owned(), format!("file={file},if=virtio,format=raw,snapshot=on")]
        });
        let disk = disk.iter().flatten();
        // The machine is killed with this process, however that ends.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", &emulator])
            .args(processor)
            .args(["-accel", accelerator, "-smp", processors])
            .args(["-m", &MEMORY_MIB.to_string()])
            .args(["-nographic", "-no-reboot", "-nic", "none"])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initramfs)
            .args(disk)
            .args(["-append", &format!("console={console} {ARGUMENTS} {more} {}", self.arguments)])
            .stdin(Stdio::null())
            .stderr(log.try_clone().with_context(cannot_log)?)
            .stdout(log);
        let mut running = Running(
            command
                .spawn()
                .with_context(|| format!("cannot start `{}`", process::show(&command)))?,
        );
        let begun = Instant::now();
        let deadline = begun + self.limit;
        loop {
            if running.0.try_wait().context("waiting for the emulator")?.is_some() {
                // Ctrl-C in a terminal also reaches the machine.
                let stopped = stop.load(Ordering::Relaxed);
                return Ok(if stopped { End::Interrupted } else { End::Off });
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(End::Interrupted);
            }
            if Instant::now() > deadline {
                return Ok(End::Deadline);
            }
            let said = || fs::metadata(self.log).map_or(0, |log| log.len());
            if begun.elapsed() > BOOT_LIMIT && said() < FIRST_WORDS {
                return Ok(End::Silent);
            }
            sleep(POLL);
        }
    }
}

/// A machine that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The machine needs no clean shutdown. It is no error if it has ended already.
        if self.0.kill().and_then(|()| self.0.wait()).is_err() {
            eprintln!("cannot end the emulator, pid {}", self.0.id());
        }
    }
}
