//! The description of the machine.

use procfs::{CpuInfo, Current, Meminfo};

use super::tool::{BPFTRACE, PERF, STRACE};

/// The machine and the tools, one fact per line.
pub(crate) fn describe() -> Vec<String> {
    let mut facts = vec![jiff::Zoned::now().strftime("%Y-%m-%d").to_string()];
    if let Ok(name) = nix::sys::utsname::uname() {
        let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
        facts.push(format!("Linux {}, {}", text(name.release()), text(name.machine())));
    }
    if let Ok(cpus) = CpuInfo::current() {
        let model = cpus.model_name(0).unwrap_or("unknown");
        // In guests, the processor reports a hypervisor.
        let guest = cpus.flags(0).is_some_and(|flags| flags.contains(&"hypervisor"));
        let kind = if guest { "a virtual machine" } else { "no virtual machine" };
        facts.push(format!("{} CPUs ({model}), {kind}", cpus.num_cores()));
    }
    if let Ok(memory) = Meminfo::current() {
        facts.push(format!("{} GiB of memory", (memory.mem_total + (1 << 29)) >> 30));
    }
    facts.extend([BPFTRACE, STRACE, PERF].map(|tool| tool.version()));
    facts
}
