//! The estimate against trees in memory, half removed from the end, of which a fifth may be read.

use super::*;

/// Directories by number.
#[derive(Clone, Default)]
struct Directory {
    files: u64,
    below: Vec<usize>,
    /// Entries that it ever had: what the size of an ext4 directory tells.
    made: u64,
}

struct InMemory {
    all: Vec<Directory>,
    spent: f64,
    budget: f64,
    /// The reading at which the machine has no time for the look any more.
    stops_at: u64,
    readings: u64,
}

impl Tree for InMemory {
    type Directory = usize;

    fn read(&mut self, number: &usize) -> Listing<usize> {
        let directory = &self.all[*number];
        let seen = directory.files + directory.below.len() as u64;
        self.readings += 1;
        self.spent += if self.readings == self.stops_at { 2.0 * self.budget } else { 1.0 };
        let directories = directory.below.clone();
        Listing { seen, entries: seen as f64, error: 0.0, directories, each_stands_for: 1.0 }
    }

    fn shape(&mut self, number: &usize) -> Shape {
        self.spent += 0.25;
        let directory = &self.all[*number];
        let directories = Some(directory.below.len() as u64);
        Shape { directories, blocks: directory.made * 24 / 4096 }
    }

    fn spent(&self) -> f64 {
        self.spent / self.budget
    }

    fn is_over(&self) -> bool {
        self.spent() > 1.5
    }
}

impl InMemory {
    fn new() -> Self {
        let all = vec![Directory::default()];
        Self { all, spent: 0.0, budget: f64::MAX, stops_at: u64::MAX, readings: 0 }
    }

    fn add(&mut self, above: usize, files: u64) -> usize {
        let number = self.all.len();
        self.all.push(Directory { files, ..Directory::default() });
        self.all[above].below.push(number);
        number
    }

    fn entries(&self, number: usize) -> u64 {
        let below = self.all[number].below.iter();
        self.all[number].files + below.map(|&below| 1 + self.entries(below)).sum::<u64>()
    }

    /// Depth first; says whether the directory is empty.
    fn remove(&mut self, number: usize, budget: &mut u64) -> bool {
        while let Some(&below) = self.all[number].below.last() {
            if !self.remove(below, budget) || *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.all[number].below.pop();
        }
        let files = self.all[number].files.min(*budget);
        *budget -= files;
        self.all[number].files -= files;
        self.all[number].files == 0
    }

    fn half_removed(mut self) -> Self {
        for directory in &mut self.all {
            directory.made = directory.files + directory.below.len() as u64;
        }
        let mut half = self.entries(0) / 2;
        self.remove(0, &mut half);
        self
    }
}

type Build = fn(&mut InMemory, &mut Rng);

fn wide(tree: &mut InMemory, _: &mut Rng) {
    for _ in 0..200 {
        let above = tree.add(0, 0);
        (0..100).for_each(|_| _ = tree.add(above, 0));
    }
}

fn binary(tree: &mut InMemory, rng: &mut Rng) {
    let mut level = vec![0];
    for _ in 0..12 {
        level = level
            .iter()
            .flat_map(|&above| [above, above])
            .map(|above| tree.add(above, rng.u64(..6)))
            .collect();
    }
}

fn chains(tree: &mut InMemory, rng: &mut Rng) {
    for _ in 0..400 {
        (0..rng.u64(1..60)).fold(0, |above, _| tree.add(above, 3));
    }
}

fn lop_sided(tree: &mut InMemory, rng: &mut Rng) {
    let large = rng.usize(..60);
    for number in 0..120 {
        let below = tree.add(0, 0);
        let below = tree.add(below, 0);
        let directories = if number == large { 6000 } else { 5 };
        (0..directories).for_each(|_| _ = tree.add(below, 4));
    }
}

fn sparse(tree: &mut InMemory, rng: &mut Rng) {
    for _ in 0..30 {
        let above = tree.add(0, 0);
        for _ in 0..400 {
            let files = if rng.u8(..8) == 0 { 40 } else { 0 };
            tree.add(above, files);
        }
    }
}

fn modules(tree: &mut InMemory, rng: &mut Rng) {
    for _ in 0..500 {
        let mut todo = vec![(tree.add(0, 3), 0)];
        while let Some((above, depth)) = todo.pop() {
            for _ in 0..if depth < 5 { rng.u64(0..4) } else { 0 } {
                todo.push((tree.add(above, rng.u64(1..20)), depth + 1));
            }
        }
    }
}

const SHAPES: [(&str, Build); 6] = [
    ("wide", wide),
    ("binary", binary),
    ("chains", chains),
    ("lop-sided", lop_sided),
    ("sparse", sparse),
    ("modules", modules),
];

/// Of the looks at trees of one shape: how many said something, had the truth in their range, and came within a quarter.
/// A tenth of the directories may be read; the machine stops a look at the reading that `stops` names.
fn score(build: Build, stops: impl Fn(&mut Rng, u64) -> u64) -> [u32; 3] {
    let mut score = [0; 3];
    for seed in 0..20 {
        let mut rng = Rng::with_seed(seed);
        let mut tree = InMemory::new();
        build(&mut tree, &mut rng);
        let mut tree = tree.half_removed();
        let budget = tree.all.len() as u64 / 10;
        tree.budget = budget as f64;
        tree.stops_at = stops(&mut rng, budget);
        let truth = tree.entries(0);
        let found = estimate(&mut tree, 0, &mut rng);
        assert!(!found.complete && found.seen < truth, "{found:?}");
        let sample = podstuck_model::remaining::Sample {
            entries: found.entries as u64,
            error: found.error as u64,
            ..Default::default()
        };
        let left = podstuck_model::remaining::Remaining {
            seen: found.seen,
            sample: Some(sample),
            ..Default::default()
        };
        let Some(range) = left.interval() else { continue };
        score[0] += 1;
        score[1] += u32::from((range.low..=range.high).contains(&truth));
        score[2] += u32::from(range.estimate.abs_diff(truth) * 4 <= truth);
    }
    score
}

#[test]
fn nine_of_ten_estimates_are_within_their_range_and_a_quarter_of_the_truth() {
    for (shape, build) in SHAPES {
        let [said, within, near] = score(build, |_, _| u64::MAX);
        println!("{shape}: {said} of 20 said, {within} within the range, {near} within a quarter");
        assert!(
            said >= 16 && within * 10 >= said * 9 && near * 10 >= said * 9,
            "{shape}: {said} {within} {near}"
        );
    }
}

/// A busy machine ends a look anywhere, also within what was drawn.
#[test]
fn a_look_that_is_stopped_anywhere_says_nothing_rather_than_something_wrong() {
    let mut sum = [0; 3];
    for (shape, build) in SHAPES {
        let score = score(build, |rng, budget| rng.u64(1..budget));
        println!("{shape}: of 20 {score:?} said, within the range, within a quarter");
        sum.iter_mut().zip(score).for_each(|(sum, one)| *sum += one);
    }
    let [said, within, _] = sum;
    assert!(said >= 30 && within * 10 >= said * 9, "{sum:?}");
}

#[test]
fn what_can_be_read_is_counted() {
    let mut tree = InMemory::new();
    modules(&mut tree, &mut Rng::with_seed(1));
    let mut tree = tree.half_removed();
    let truth = tree.entries(0);
    let found = estimate(&mut tree, 0, &mut Rng::with_seed(2));
    assert!(found.complete && found.levels > 3, "{found:?}");
    assert_eq!((found.seen, found.entries.round() as u64), (truth, truth));
    assert!(found.error < 1e-6, "{found:?}");
}
