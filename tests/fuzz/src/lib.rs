//! Fuzzing of what reads foreign input: files of a corpus, changed at random, go through a parser. It must not
//! panic, must come to an end, and must take no more memory than its input accounts for.
//!
//! Each target is a test beside its parser, `fuzz_TARGET`, with a corpus in `podstuck-user/corpus/TARGET`. A run of the tests
//! takes a fixed number of inputs from a fixed seed, so that nothing but the code decides how it ends.
//! `cargo xtask fuzz [TARGET] --for 1h` goes on with new ones. What is found is added to the corpus, and so
//! tried first from then on.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner},
};
use rustix::time::{ClockId, clock_gettime};

/// The corpora of all crates.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../podstuck-user/corpus");
/// Seconds to go on for, as `cargo xtask fuzz` says it.
const GO_ON: &str = "PODSTUCK_FUZZ_FOR";
/// Inputs of one round; without more time, the only one.
const INPUTS: u32 = 2048;
/// Longest input. What grows faster than its input shows below that.
const LONGEST: usize = 64 << 10;
/// Memory that a parser may take for the shortest input: regular expressions keep caches of some megabytes.
const MEMORY: u64 = 8 << 20;
/// And more for each byte: a field of one byte becomes a structure.
const MEMORY_OF_A_BYTE: u64 = 512;
/// CPU time that one input may take, in a build without optimization.
const TIME: Duration = Duration::from_secs(5);
/// How many bytes of an input that failed are printed.
const SHOWN: usize = 4096;
/// How long the watchdog waits for a parser that does not come back.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is special to some format.
const TOKENS: [&[u8]; 36] = [
    b"\n",
    b" ",
    b"\0",
    b"\t",
    b"\"",
    b"'",
    b"\\",
    b"/",
    b"..",
    b"=",
    b":",
    b",",
    b"-",
    b"--",
    b"%",
    b"@",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[[[[[[[[",
    b"{\"a\":",
    b"null",
    b"&a [*a,*a]",
    b"\\040",
    b"\\x",
    b"\\U0010ffff",
    b"-1",
    b"4294967296",
    b"18446744073709551615",
    b"1e999",
    b"9999-12-31T23:59:59.999999999Z",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\xff",
    "\u{202e}ä\u{10ffff}".as_bytes(),
];

/// What numbers are replaced by: the ends of each width.
const NUMBERS: [&[u8]; 9] = [
    b"0",
    b"1",
    b"255",
    b"65536",
    b"2147483647",
    b"4294967295",
    b"9223372036854775807",
    b"18446744073709551615",
    b"-1",
];

/// A change of an input. Places are shares of its length.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Cut(Index, usize),
    Repeat(Index, usize, usize),
    /// From another file of the corpus, a place in it and a length, to a place.
    Splice(Index, Index, usize, Index),
    /// One of the numbers in it.
    Number(Index, &'static [u8]),
    /// A line to another place; twice there if it stays.
    Line(Index, Index, bool),
}

impl Change {
    fn any() -> impl Strategy<Value = Self> {
        let at = any::<Index>;
        let token = prop_oneof![
            3 => select(&TOKENS[..]).prop_map(<[u8]>::to_vec),
            1 => vec(any::<u8>(), 1..9),
        ];
        prop_oneof![
            1 => (at(), any::<u8>()).prop_map(|(at, byte)| Self::Set(at, byte)),
            1 => (at(), 0..8_u8).prop_map(|(at, bit)| Self::Flip(at, bit)),
            1 => (at(), token).prop_map(|(at, token)| Self::Insert(at, token)),
            1 => (at(), 1..200_usize).prop_map(|(at, length)| Self::Cut(at, length)),
            1 => (at(), 1..64_usize, 1..200_usize)
                .prop_map(|(at, length, times)| Self::Repeat(at, length, times)),
            1 => (at(), at(), 1..500_usize, at())
                .prop_map(|(other, from, length, at)| Self::Splice(other, from, length, at)),
            2 => (at(), select(&NUMBERS[..])).prop_map(|(number, by)| Self::Number(number, by)),
            1 => (at(), at(), any::<bool>()).prop_map(|(from, to, stays)| Self::Line(from, to, stays)),
        ]
    }

    fn apply(&self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let place = |at: &Index| at.index(input.len() + 1);
        match self {
            Self::Set(at, byte) => {
                let at = place(at);
                input.get_mut(at).into_iter().for_each(|old| *old = *byte);
            }
            Self::Flip(at, bit) => {
                let at = place(at);
                input.get_mut(at).into_iter().for_each(|old| *old ^= 1 << bit);
            }
            Self::Insert(at, token) => {
                let at = place(at);
                input.splice(at..at, token.iter().copied());
            }
            Self::Cut(at, length) => {
                let at = place(at);
                input.drain(at..input.len().min(at + length));
            }
            Self::Repeat(at, length, times) => {
                let at = place(at);
                let part = input[at..input.len().min(at + length)].repeat(*times);
                input.splice(at..at, part);
            }
            Self::Splice(other, from, length, at) => {
                let (other, at) = (other.get(corpus), place(at));
                let from = from.index(other.len() + 1);
                let part = &other[from..other.len().min(from + length)];
                input.splice(at..at, part.iter().copied());
            }
            Self::Number(number, by) => {
                let starts = (0..input.len()).filter(|at| {
                    input[*at].is_ascii_digit() && (*at == 0 || !input[at - 1].is_ascii_digit())
                });
                let starts: Vec<usize> = starts.collect();
                if !starts.is_empty() {
                    let at = *number.get(&starts);
                    let digits =
                        input[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                    input.splice(at..at + digits, by.iter().copied());
                }
            }
            Self::Line(from, to, stays) => {
                let mut lines: Vec<&[u8]> = input.split_inclusive(|byte| *byte == b'\n').collect();
                if !lines.is_empty() {
                    let from = from.index(lines.len());
                    let line = if *stays { lines[from] } else { lines.remove(from) };
                    lines.insert(to.index(lines.len() + 1), line);
                    *input = lines.concat();
                }
            }
        }
        input.truncate(LONGEST);
    }
}

fn changed(corpus: Arc<[Vec<u8>]>) -> impl Strategy<Value = Vec<u8>> {
    (any::<Index>(), vec(Change::any(), 0..8)).prop_map(move |(file, changes)| {
        let mut input = file.get(&corpus).clone();
        changes.iter().for_each(|change| change.apply(&mut input, &corpus));
        input
    })
}

/// Runs a property with `cases` cases: the same ones each time, unless there is time for more.
pub fn runner(cases: u32) -> TestRunner {
    let rng_seed = if time().is_some() { RngSeed::Random } else { RngSeed::Fixed(0x706f_6473) };
    TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() })
}

fn time() -> Option<Duration> {
    Some(Duration::from_secs(env::var(GO_ON).ok()?.parse().unwrap()))
}

/// Tries a parser.
pub fn fuzz(target: &str, parse: impl Fn(&[u8])) {
    let folder = Path::new(CORPUS).join(target);
    let corpus: Arc<[Vec<u8>]> = read(&folder).into();
    let watchdog = Watchdog::start(&folder);
    for input in corpus.iter() {
        // Once before it is measured: what is made once and kept belongs to no input.
        parse(input);
        check(&parse, input, &watchdog);
    }
    let strategy = changed(corpus);
    let (begun, mut inputs) = (Instant::now(), 0_u64);
    loop {
        let tried = runner(INPUTS).run(&strategy, |input| {
            check(&parse, &input, &watchdog);
            Ok::<(), TestCaseError>(())
        });
        if let Err(TestError::Fail(why, input)) = tried {
            let file = keep(&folder, &input);
            // The file is not to be had from a machine that is gone.
            panic!("{why}, for what is now in {}: {}", file.display(), shown(&input));
        }
        inputs += u64::from(INPUTS);
        match time() {
            Some(time) if begun.elapsed() < time => {}
            Some(_) => return eprintln!("{target}: {inputs} inputs"),
            None => return,
        }
    }
}

fn check(parse: &impl Fn(&[u8]), input: &[u8], watchdog: &Watchdog) {
    let cpu = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    *watchdog.0.lock().unwrap() = Some((Instant::now(), input.to_vec()));
    let begun = cpu();
    let mut panicked = None;
    // What counts does not survive a panic that leaves it.
    let used = allocation_counter::measure(|| {
        panicked = panic::catch_unwind(AssertUnwindSafe(|| parse(input))).err();
    });
    let took = cpu() - begun;
    *watchdog.0.lock().unwrap() = None;
    if let Some(panicked) = panicked {
        panic::resume_unwind(panicked);
    }
    let most = MEMORY + MEMORY_OF_A_BYTE * input.len() as u64;
    assert!(used.bytes_max <= most, "{} bytes for an input of {}", used.bytes_max, input.len());
    assert!(took <= TIME, "{took:?} for an input of {} bytes", input.len());
}

fn read(folder: &Path) -> Vec<Vec<u8>> {
    let files = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "nothing in {}", folder.display());
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// As a string of Rust's, if it is not too long to print.
fn shown(input: &[u8]) -> String {
    let end = if input.len() > SHOWN { "[... and more]" } else { "" };
    format!("b\"{}\"{end}", input[..input.len().min(SHOWN)].escape_ascii())
}

/// Adds to the corpus.
fn keep(folder: &Path, input: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let file = folder.join(format!("found-{:016x}", hasher.finish()));
    fs::write(&file, input).unwrap();
    file
}

/// What is being parsed, and since when.
type Current = Mutex<Option<(Instant, Vec<u8>)>>;

/// Ends the whole test program when a parser does not come back, since a thread cannot be ended.
struct Watchdog(Arc<Current>);

impl Watchdog {
    fn start(folder: &Path) -> Self {
        let current = Arc::new(Current::default());
        let (watched, folder) = (Arc::downgrade(&current), folder.to_owned());
        thread::spawn(move || {
            while let Some(current) = watched.upgrade() {
                if let Some((_, input)) =
                    current.lock().unwrap().take_if(|(since, _)| since.elapsed() > PATIENCE)
                {
                    let file = keep(&folder, &input);
                    let (file, input) = (file.display(), shown(&input));
                    eprintln!("no end after {PATIENCE:?} for what is now in {file}: {input}");
                    std::process::abort();
                }
                drop(current);
                thread::sleep(Duration::from_secs(1));
            }
        });
        Self(current)
    }
}

#[cfg(test)]
mod tests;
