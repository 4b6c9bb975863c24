//! Completed requests of block devices: `/proc/diskstats` (Documentation/admin-guide/iostats.rst), which the kernel
//! answers from memory.

use std::fs;

use podstuck_model::{hung::DiskWork, mounts::Device};

/// All devices that have completed a request.
pub(super) fn read() -> Vec<DiskWork> {
    parse(&fs::read_to_string("/proc/diskstats").unwrap_or_default())
}

fn parse(text: &str) -> Vec<DiskWork> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let device = |at: usize| fields.get(at)?.parse().ok();
        let device = Device { major: device(0)?, minor: device(1)? };
        // Reads, writes and, since Linux 5.5, flushes.
        let done = number(3)?.saturating_add(number(7)?).saturating_add(number(18).unwrap_or(0));
        (done > 0).then_some(DiskWork { device, done })
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
    fn what_is_completed_counts() {
        let text = "   8       0 sda 10 1 80 5 20 2 160 9 0 7 14 0 0 0 0 3 4\n\
            7 1 loop1 0 0 0 0 0 0 0 0 0 0 0\n\
            8 1 sda1 4 0 0 0 1 0 0 0 0 0 0\nnonsense\n";
        let done: Vec<(u32, u64)> =
            parse(text).iter().map(|work| (work.device.minor, work.done)).collect();
        assert_eq!(done, [(0, 33), (1, 5)]);
    }
}
