//! Warnings of the kernel about block devices and the file systems on them. A record counts by its level and by the
//! device that it names, not by its words, which differ between drivers, file systems and versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use super::kernel::{Record, said};
use podstuck_model::{
    said::{Complaint, Level, Said},
    time::Clock,
};

/// The kernel's devices by name: `/sys/class/block/NAME/dev`, `NAME/PARTITION/partition`, `NAME/holders/NAME`.
const BLOCK: &str = "/sys/class/block";
/// `KERN_WARNING`. What is less urgent tells of healthy devices.
const WARNING: u32 = 4;
/// Warnings this far apart are about different faults.
const PAUSE: Duration = Duration::from_secs(600);
/// Devices that a warning is kept of.
const DEVICES: usize = 64;
/// Levels of devices that are built on one another.
const LEVELS: usize = 8;

/// The numbers of a block device, `major:minor`: its own, and those of what is built on it.
type Numbers = Box<dyn Fn(&str) -> BTreeSet<String>>;

/// The names of the block devices.
pub(super) struct Devices {
    names: BTreeSet<String>,
    numbers: Numbers,
}

impl Devices {
    pub(super) fn read() -> Self {
        let names = names(Path::new(BLOCK)).into_iter().collect();
        Self { names, numbers: Box::new(numbers) }
    }

    /// For each device that a record names, the last warning about it, and the number of those without a pause before it.
    pub(super) fn warnings(&self, records: &[Record], clock: Clock, source: &str) -> Vec<Said> {
        let mut last: BTreeMap<&str, (&Record, u64)> = BTreeMap::new();
        for record in records.iter().filter(|record| record.level <= WARNING) {
            for name in self.named(&record.text) {
                if last.len() >= DEVICES && !last.contains_key(name) {
                    continue;
                }
                let (newest, times) = last.entry(name).or_insert((record, 0));
                // After a pause, it is about something else: device names are reused.
                let goes_on = record.since_boot.saturating_sub(newest.since_boot) < PAUSE;
                (*newest, *times) = (record, if goes_on { *times + 1 } else { 1 });
            }
        }
        let warning = |(name, (record, times)): (&str, (&Record, u64))| Said {
            devices: (self.numbers)(name).into_iter().collect(),
            times,
            level: if record.level < WARNING { Level::Error } else { Level::Warning },
            ..said(record.at(clock), Complaint::DeviceWarning, &record.text, source)
        };
        last.into_iter().map(warning).collect()
    }

    /// The devices that a text names, as whole words.
    fn named<'a>(&'a self, text: &str) -> impl Iterator<Item = &'a str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_!".contains(c);
        let words: BTreeSet<&str> = text.split(|c| !is_part(c)).collect();
        words.into_iter().filter_map(|word| self.names.get(word)).map(String::as_str)
    }
}

fn numbers(name: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([name.to_owned()]);
    let mut last = vec![name.to_owned()];
    for _ in 0..LEVELS {
        last = last.iter().flat_map(|name| built_on(name)).collect();
        last.retain(|name| all.insert(name.clone()));
    }
    let number = |name: &String| fs::read_to_string(Path::new(BLOCK).join(name).join("dev")).ok();
    all.iter().filter_map(number).map(|number| number.trim().to_owned()).collect()
}

/// The partitions of a device, and the devices that hold it open (device mapper, md, bcache).
fn built_on(name: &str) -> impl Iterator<Item = String> {
    let device = Path::new(BLOCK).join(name);
    let partitions: Vec<String> = names(&device)
        .into_iter()
        .filter(|part| device.join(part).join("partition").exists())
        .collect();
    names(&device.join("holders")).into_iter().chain(partitions)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use podstuck_model::time::Monotonic;

    use super::{super::kernel::of_kernel, *};

    const BOOT: Clock = Clock::new(Timestamp::UNIX_EPOCH, Monotonic(0));

    impl Devices {
        pub(in super::super) fn of<const N: usize>(all: [(&str, &str, &[&str]); N]) -> Self {
            let of = |(name, own, above): (&str, &str, &[&str])| {
                let numbers = above.iter().chain([&own]).map(|number| (*number).to_owned());
                (name.to_owned(), numbers.collect())
            };
            let all: BTreeMap<String, BTreeSet<String>> = all.into_iter().map(of).collect();
            let names = all.keys().cloned().collect();
            Self { names, numbers: Box::new(move |name| all[name].clone()) }
        }
    }

    /// Texts of block/blk-core.c, drivers/scsi/scsi_logging.c, fs/ext4/super.c, fs/xfs/xfs_message.c, fs/btrfs/messages.c
    /// and drivers/nvme/host/core.c.
    #[test]
    fn a_warning_counts_by_its_level_and_the_device_that_it_names() {
        let devices = Devices::of([
            ("sda", "8:0", &["8:1", "253:0"]),
            ("dm-0", "253:0", &[]),
            ("nvme0n1", "259:0", &[]),
        ]);
        let all: &[&str] = &["253:0", "8:0", "8:1"];
        for (level, text, expected) in [
            (3, "blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ)", Some(all)),
            (6, "sd 2:0:0:0: [sda] Attached SCSI disk", None),
            (4, "sd 2:0:0:0: [sda] tag#0 timing out command, waited 180s", Some(all)),
            (2, "EXT4-fs error (device dm-0): ext4_find_entry:1455: inode #2", Some(&["253:0"])),
            (1, "XFS (dm-0): Filesystem has been shut down due to log error", Some(&["253:0"])),
            (3, "BTRFS error (device nvme0n1): bdev /dev/nvme0n1 errs: wr 1", Some(&["259:0"])),
            (4, "Aborting journal on device sda1-8.", None),
            (4, "task sdax:1 blocked", None),
        ] {
            let record = of_kernel(&format!("{level},1,5000000,-;{text}\n")).unwrap();
            let found = devices.warnings(&[record], BOOT, "log");
            let numbers =
                found.first().map(|said| said.devices.iter().map(String::as_str).collect());
            assert_eq!(numbers, expected.map(<[_]>::to_vec), "{text}");
        }
    }

    #[test]
    fn the_last_warning_of_a_device_is_kept_with_their_number() {
        let record = |at: u32| {
            of_kernel(&format!("3,1,{at}000000,-;I/O error, dev sda, sector {at}\n")).unwrap()
        };
        let devices = Devices::of([("sda", "8:0", &[])]);
        // The first two are of an older fault.
        let all = [1, 2, 903, 904, 905].map(record);
        let said = devices.warnings(&all, BOOT, "log");
        let [only] = &said[..] else { panic!("{said:?}") };
        assert_eq!((only.times, only.at.as_second()), (3, 905));
        assert_eq!(
            (only.text.as_str(), only.level),
            ("I/O error, dev sda, sector 905", Level::Error)
        );
    }
}
