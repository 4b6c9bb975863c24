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
/// Two writers at a time are to be two at a time.
const PROCESSORS: &str = "2";
/// Both processors take turns in one thread. With a thread for each, QEMU 7.2 now and then executes
/// a breakpoint that the other processor has already patched away again, which the kernel takes
/// for a fault of its own (`Oops: int3` while probes are attached).
const IN_TURN: &str = "tcg,thread=single";
/// A thread for each. Such a fault shall end the machine, so that it is run again, and so shall one processor
/// that waits for the other for ever.
const AT_ONCE: &str = "tcg,thread=multi";
const ENDS_BY_FAULTS: &str = "oops=panic softlockup_panic=1 watchdog_thresh=30";
/// Every instruction that the emulator knows but CMPXCHG16B: QEMU 7.2 leaves garbage in the flags
/// after it, and an interrupt just then takes the kernel down with a double fault. The kernel's
/// memory allocator uses it all the time, unless the processor says that it has none.
const AMD64: [&str; 2] = ["-cpu", "max,-cx16"];
/// The processor of many nodes in clouds.
const ARM64: [&str; 4] = ["-machine", "virt,gic-version=3", "-cpu", "neoverse-n1"];
/// The kernel's own: what panics ends the machine; memory is not wiped twice, which an emulator
/// does slowly.
const ARGUMENTS: &str = "panic=-1 quiet init_on_alloc=0";
const POLL: Duration = Duration::from_millis(200);
/// Measured: a machine boots in 6 to 15 s, with three others beside it. One whose processors run at once may be in a
/// loop for ever instead, before its kernel says a word.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// What the firmware says is shorter.
const FIRST_WORDS: u64 = 160;

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It switched itself off, by its own will or by a panic
    Off,
    /// Its time was up, and it was killed
    Deadline,
    /// It had said nothing when it should long have booted, and was killed
    Silent,
    /// We were asked to stop, and it was killed
    Interrupted,
}

/// The program that is such a machine.
pub(super) fn emulator(architecture: Architecture) -> String {
    format!("qemu-system-{}", architecture.of_rust())
}

/// Its serial line, as the kernel calls it.
const fn console(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "ttyS0",
        Architecture::Arm64 => "ttyAMA0",
    }
}

/// What to boot.
pub(super) struct Guest<'a> {
    pub(super) architecture: Architecture,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// What is written to it is gone with the machine
    pub(super) disk: Option<&'a Path>,
    /// Kernel arguments, most of them for `init.sh`
    pub(super) arguments: &'a str,
    /// Both processors run at once, and not in turn
    pub(super) at_once: bool,
    /// Where the console goes
    pub(super) log: &'a Path,
    pub(super) limit: Duration,
}

impl Guest<'_> {
    /// Memory that one machine takes.
    pub(super) const MEMORY: u64 = (MEMORY_MIB as u64 + 256) << 20;

    /// Runs the machine to its end.
    pub(super) fn run(&self, stop: &AtomicBool) -> Result<End> {
        let cannot_log = || format!("cannot write {}", self.log.display());
        let log = File::create(self.log).with_context(cannot_log)?;
        let (accelerator, more) =
            if self.at_once { (AT_ONCE, ENDS_BY_FAULTS) } else { (IN_TURN, "") };
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
        // A machine never outlives us, however we end.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", &emulator])
            .args(processor)
            .args(["-accel", accelerator, "-smp", PROCESSORS])
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
                // Ctrl-C in a terminal reaches the machine, too.
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

/// A machine that is killed when it is no longer waited for.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing in it is worth a clean end. One that has ended already is not an error.
        if self.0.kill().and_then(|()| self.0.wait()).is_err() {
            eprintln!("cannot end the emulator, pid {}", self.0.id());
        }
    }
}
