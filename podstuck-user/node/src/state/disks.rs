//! Requests of block devices: `/proc/diskstats` (Documentation/admin-guide/iostats.rst), which the kernel answers from
//! memory.

use std::fs;

use podstuck_model::{hung::DiskWork, mounts::Device};

/// What a block device has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requests {
    pub(super) name: String,
    pub(super) device: Device,
    /// Completed since boot: reads, writes, discards and flushes.
    pub(super) done: u64,
    pub(super) in_flight: u64,
}

/// All block devices.
pub(super) fn read() -> Vec<Requests> {
    parse(&fs::read_to_string("/proc/diskstats").unwrap_or_default())
}

/// The devices that have completed a request.
pub(super) fn that_worked() -> Vec<DiskWork> {
    let work = |it: Requests| DiskWork { device: it.device, done: it.done };
    read().into_iter().map(work).filter(|work| work.done > 0).collect()
}

fn parse(text: &str) -> Vec<Requests> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let device = |at: usize| fields.get(at)?.parse().ok();
        let device = Device { major: device(0)?, minor: device(1)? };
        // Discards since Linux 4.18, flushes since 5.5.
        let newer = [14, 18].into_iter().filter_map(number);
        let done = newer.fold(number(3)?.saturating_add(number(7)?), u64::saturating_add);
        let name = (*fields.get(2)?).to_owned();
        Some(Requests { name, device, done, in_flight: number(11).unwrap_or(0) })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_diskstats() {
        podstuck_fuzz::fuzz("diskstats", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = parse(&text);
        });
    }

    #[test]
    fn what_is_completed_and_what_is_not_counts() {
        let text = "   8       0 sda 10 1 80 5 20 2 160 9 0 7 14 6 0 0 0 3 4\n\
            7 1 loop1 0 0 0 0 0 0 0 0 2 0 0\n\
            8 1 sda1 4 0 0 0 1 0 0 0 0 0 0\nnonsense\n";
        let all = parse(text);
        let found: Vec<_> =
            all.iter().map(|it| (it.name.as_str(), it.done, it.in_flight)).collect();
        assert_eq!(found, [("sda", 39, 0), ("loop1", 0, 2), ("sda1", 5, 0)]);
    }
}
