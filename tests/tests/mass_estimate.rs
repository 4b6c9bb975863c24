//! How much is left of a mass deletion, by the tool's own look, against what is left: trees of many
//! shapes on several file systems, removed in Go's order and stopped half-way.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "mass_estimate/disk.rs"]
mod disk;
#[path = "mass_estimate/look.rs"]
mod look;
#[path = "mass_estimate/trees.rs"]
mod trees;

use std::path::Path;

use disk::Disk;
use look::{Budget, Stopped, look};
use podstuck_engine::model::remaining::Remaining;
use podstuck_tests::{has_loop_devices, requires, root_and_btf};
use trees::{Made, SHAPES, Shape};

/// How often each tree is read, with other random numbers.
const LOOKS: u64 = 10;

/// Fewer for a tree that is read from a disk: there a read ends after `COLD` milliseconds.
const COLD_LOOKS: u64 = 3;
const COLD: u64 = 60;

/// One tree: what is left, and what each read said.
struct Row {
    name: String,
    truth: u64,
    looks: Vec<Remaining>,
}

impl Row {
    /// How many of the reads said something, had the truth in their range, and came within a quarter.
    fn score(&self) -> [usize; 3] {
        let said: Vec<_> = self.looks.iter().filter_map(Remaining::interval).collect();
        let within = said.iter().filter(|range| (range.low..=range.high).contains(&self.truth));
        let near =
            said.iter().filter(|range| range.estimate.abs_diff(self.truth) * 4 <= self.truth);
        [said.len(), within.count(), near.count()]
    }

    fn print(&self) {
        let first = &self.looks[0];
        let said = first.interval().map_or("nothing".into(), |range| {
            let off = 100.0 * (range.estimate as f64 / self.truth as f64 - 1.0);
            format!("{:>5} ({off:+5.1} %), {:>5} to {:>5}", range.estimate, range.low, range.high)
        });
        let [all, within, near] = self.score();
        println!(
            "{:22} {:>5} left, {:>4} seen: {said}; of {} looks {all} said something, {within} \
             within, {near} near",
            self.name,
            self.truth,
            first.seen,
            self.looks.len()
        );
    }
}

/// A tenth of a tree's directories may be read, of a flat one a fifth of its entries. Time does not
/// end a read, so that it says the same on every machine.
fn budget(shape: &Shape, made: &Made, seed: u64) -> Budget {
    let entries = if shape.is_flat { made.entries / 5 } else { 10 * made.entries };
    Budget { milliseconds: 600_000, directories: made.directories / 10, entries, seed: Some(seed) }
}

fn half_way(disk: &Path, file_system: &str, shape: &Shape) -> Row {
    let top = disk.join(shape.name);
    let made = trees::make(&top, shape);
    let removal = Stopped::after(&top, made.entries / 2);
    let truth = trees::count(&top);
    assert_eq!(truth, made.entries - made.entries / 2);
    let looks = (0..LOOKS).map(|seed| look(removal.pid(), &top, budget(shape, &made, seed)));
    let looks: Vec<_> = looks.collect();
    assert!(looks.iter().all(|left| !left.complete && left.seen < truth), "{looks:?}");
    Row { name: format!("{file_system} {}", shape.name), truth, looks }
}

#[test]
fn half_way_the_end_is_estimated_for_nine_of_ten_trees() {
    requires!(root_and_btf(), has_loop_devices());
    let mut sum = [0; 3];
    let mut trees = 0;
    for file_system in ["ext4", "xfs", "tmpfs"] {
        let disk = match Disk::mount(file_system) {
            Ok(disk) => disk,
            Err(reason) => {
                podstuck_tests::skip(format!("{file_system}: {reason}"));
                continue;
            }
        };
        for shape in SHAPES {
            let row = half_way(&disk.path(), file_system, shape);
            row.print();
            trees += 1;
            sum.iter_mut().zip(row.score()).for_each(|(sum, one)| *sum += one);
        }
    }
    let [said, within, near] = sum;
    let looks = trees * LOOKS as usize;
    println!("of {looks} looks {said} said something, {within} within, {near} near");
    assert!(said * 10 >= looks * 9, "{said} of {looks}");
    assert!(within * 10 >= said * 9 && near * 10 >= said * 9, "{within} and {near} of {said}");
}

/// Whether `hits` of some thirty do not speak against nine of ten: three standard deviations below would. How much a cold
/// read sees depends on the machine's load, so that no two runs are alike.
fn speaks_for_nine_of_ten(hits: usize, of: usize) -> bool {
    let (hits, of) = (hits as f64, of as f64);
    hits >= 0.9 * of - 3.0 * (of * 0.9 * 0.1).sqrt()
}

/// Nothing of the tree is in memory, and the time for a read ends long before all was seen.
#[test]
fn half_way_the_end_is_estimated_where_nothing_was_read_before() {
    requires!(root_and_btf(), has_loop_devices());
    let mut sum = [0; 3];
    let (mut cut_short, mut looks) = (0, 0);
    for file_system in ["ext4", "xfs"] {
        let disk = match Disk::mount(file_system) {
            Ok(disk) => disk,
            Err(reason) => {
                podstuck_tests::skip(format!("{file_system}: {reason}"));
                continue;
            }
        };
        for shape in SHAPES {
            let top = disk.path().join(shape.name);
            let made = trees::make(&top, shape);
            let removal = Stopped::after(&top, made.entries / 2);
            let truth = made.entries - made.entries / 2;
            let cold = |seed| {
                // Not `sync`, which waits for all disks.
                let disk = std::fs::File::open(disk.path()).unwrap();
                nix::unistd::syncfs(disk).unwrap();
                std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
                let seed = Some(seed);
                look(removal.pid(), &top, Budget { milliseconds: COLD, seed, ..Budget::default() })
            };
            let all: Vec<_> = (0..COLD_LOOKS).map(cold).collect();
            looks += all.len();
            let (counted, estimated): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|left| left.complete);
            assert!(counted.iter().all(|left| left.seen == truth), "{counted:?}");
            cut_short += estimated.len();
            if !estimated.is_empty() {
                let name = format!("{file_system} {}, cold", shape.name);
                let row = Row { name, truth, looks: estimated };
                row.print();
                sum.iter_mut().zip(row.score()).for_each(|(sum, one)| *sum += one);
            }
        }
    }
    let [said, within, near] = sum;
    println!(
        "of {looks} cold looks {cut_short} were cut short, {said} said something, {within} within, {near} near"
    );
    assert!(cut_short > 0, "every tree was read whole in {COLD} ms, and nothing was estimated");
    assert!(
        speaks_for_nine_of_ten(within, said) && speaks_for_nine_of_ten(near, said),
        "{within} and {near} of {said}"
    );
}

#[test]
fn what_is_small_enough_is_counted_and_what_cannot_be_estimated_is_not() {
    requires!(root_and_btf());
    let disk = Disk::mount("tmpfs").unwrap();
    let shape = &SHAPES[0];
    let top = disk.path().join(shape.name);
    let made = trees::make(&top, shape);
    let removal = Stopped::after(&top, made.entries / 2);
    let truth = made.entries - made.entries / 2;
    let everything = Budget { milliseconds: 600_000, ..Budget::default() };
    let left = look(removal.pid(), &top, everything);
    assert_eq!((left.complete, left.seen, left.sample), (true, truth, None));
    let almost_nothing = Budget { directories: 3, ..everything };
    let left = look(removal.pid(), &top, almost_nothing);
    assert!(!left.complete && left.interval().is_none(), "{left:?}");
}
