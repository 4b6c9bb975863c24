//! Checks that the probes and user space find the same target in a path, although each reads it in its own way.

use podstuck_common::{
    component::{ComponentEnd, mix, name_hash, unaligned},
    config::Config,
    record::RecordHead,
    trail::Trail,
};
use podstuck_fuzz::runner;
use proptest::{collection::vec, prelude::*, sample::select};

use podstuck_node::identity::layout::{target_names, target_root};
use podstuck_probe::decode::decode;

/// The bytes that the probes search (`SEARCHED` in their `path.rs`).
const SEARCHED: usize = 512;

fn config() -> Config {
    Config { by_text: 1, ..target_names() }
}

/// Continues a trail with an argument, word by word, as `follow_one` of the probes does.
fn follow(trail: &mut Trail, argument: &[u8]) {
    let mut words = vec![0_u64; argument.len() / 8 + 3];
    for (at, byte) in argument.iter().enumerate() {
        words[at / 8] |= u64::from(*byte) << (8 * (at % 8));
    }
    let (mut hash, mut len, mut at) = (0, 0, 0_u32);
    loop {
        let index = at as usize / 8;
        let word = unaligned(words[index], words[index + 1], at);
        let Some(end) = ComponentEnd::find(word) else {
            (hash, len, at) = (mix(hash, word), len + 8, at + 8);
            continue;
        };
        let whole = if end.len == 0 { hash } else { mix(hash, end.bytes) };
        len += end.len;
        if len != 0 && !(len == 1 && end.bytes == u64::from(b'.')) {
            trail.step(&config(), mix(whole, u64::from(len)), len, false);
        }
        (hash, len, at) = (0, 0, at + end.len + 1);
        if end.last {
            return;
        }
    }
}

/// Builds a trail from the names of directories, as `descend` does.
fn descend(names: &[Vec<u8>]) -> Trail {
    let mut trail = Trail::default();
    for name in names {
        trail.step(&config(), name_hash(name), name.len() as u32, false);
    }
    trail
}

/// Bytes of a record: the directory's names, the leaf first, then the argument.
fn record(directory: &[Vec<u8>], argument: &[u8]) -> Vec<u8> {
    let names: Vec<u8> =
        directory.iter().rev().flat_map(|name| [name.as_slice(), &[0]].concat()).collect();
    let head = RecordHead {
        base_len: names.len() as u16,
        argument_len: argument.len() as u16,
        ..RecordHead::default()
    };
    // SAFETY: a head has no padding.
    let fixed = unsafe {
        std::slice::from_raw_parts((&raw const head).cast::<u8>(), size_of::<RecordHead>())
    };
    [fixed, &names, argument].concat()
}

/// A name that the rule matches, any other name, and one that only resembles either.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let known = select(vec![
        "pods",
        "volumes",
        "overlay2",
        "overlay",
        "snapshots",
        "k8s.io",
        "moby",
        "pod",
        "podss",
        "...",
        ".a",
        "0f0e0d0c-1111-2222-3333-444455556666",
        "0123456789abcdef0123456789abcdef",
        "kubernetes.io~csi",
    ]);
    let byte = any::<u8>().prop_filter("no part of a name", |byte| !matches!(byte, 0 | b'/'));
    prop_oneof![
        4 => known.prop_map(|name| name.as_bytes().to_vec()),
        3 => vec(byte.clone(), 1..20),
        1 => vec(byte, 1..256),
    ]
    .prop_filter("names nothing", |name| name != b"." && name != b"..")
}

/// An argument: names, and separators between and around them. Arguments with `..` are left to the probes' tests:
/// there the probes report the target as unknown.
fn argument() -> impl Strategy<Value = Vec<u8>> {
    let between = select(vec!["/", "//", "/./", "///././"]);
    let start = select(vec!["", "/", "./", "//"]);
    let whole = (start, vec((name(), between), 0..9), any::<bool>());
    whole
        .prop_map(|(start, parts, slash)| {
            let mut text = start.as_bytes().to_vec();
            for (name, between) in parts {
                text.extend(name);
                text.extend(between.as_bytes());
            }
            text.pop_if(|_| !slash);
            text
        })
        .prop_filter("longer than is searched", |text| text.len() < SEARCHED)
}

/// The trails of both: the probes', and user space's of the record's path.
fn both(directory: &[Vec<u8>], argument: &[u8]) -> (Trail, Option<Trail>) {
    let mut probes = descend(directory);
    follow(&mut probes, argument);
    let record = decode(&record(directory, argument).into()).unwrap();
    (probes, target_root(&record.path()).map(|(_, trail)| trail))
}

#[test]
fn probes_and_user_space_take_the_same_way() {
    runner(20_000)
        .run(&(vec(name(), 0..7), argument()), |(directory, argument)| {
            let (probes, own) = both(&directory, &argument);
            match own {
                Some(own) => prop_assert_eq!(probes, own),
                None => prop_assert_eq!(probes.target, 0),
            }
            Ok(())
        })
        .unwrap();
}
