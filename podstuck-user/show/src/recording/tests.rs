use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, os::unix::fs::PermissionsExt, path::Path};

use jiff::Timestamp;

use super::{process::tests::served, writer::first_frame, *};
use podstuck_engine::engine::Engine;
use podstuck_model::{
    call::{Call, Outcome},
    degraded::{Degraded, Feed},
    event::{Count, Event, Run, Thresholds, What},
    identity::{Actor, Component, Pod, Target, TargetKind},
    mounts::{Mount, Mounts},
    node::{NodeSample, PodState},
    operation::Operation,
    said::{Complaint, Said},
    summary::{Completeness, SelfCost, Start},
    time::{Clock, Monotonic},
};
use podstuck_testing::samples;

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn run() -> Run {
    Run {
        clock: Clock::new(Timestamp::UNIX_EPOCH, Monotonic(1_000_000_000)),
        start: Start { kernel: "6.18.0".into(), ..Start::default() },
        own_mnt_ns: 4,
        thresholds: Thresholds::default(),
        one_answer: false,
        pod: Some(Pod {
            uid: UID.into(),
            namespace: Some("bank".into()),
            name: Some("vault".into()),
        }),
        container: None,
        directory: None,
    }
}

fn operation(second: u64, name: &[u8]) -> Operation {
    let path = Path::new("/var/lib/kubelet/pods").join(UID).join("volumes/kubernetes.io~csi/pv");
    let (kind, root) = (TargetKind::PodVolume, path.clone());
    let target = Target { kind, root, pod: run().pod, ..Target::unknown() };
    let cgroup = Some("/system.slice/kubelet.service".into());
    let actor = Actor { pid: 7, cgroup, ..samples::actor(Component::Kubelet) };
    Operation {
        end: Monotonic(second * 1_000_000_000),
        path: path.join(OsStr::from_bytes(name)),
        target_id: u64::MAX,
        target: target.into(),
        actor: actor.into(),
        ..samples::operation(Call::UnlinkatDir, Outcome(16))
    }
}

fn sample(second: u64, pods: &[&str], mounts: &[u32]) -> NodeSample {
    let pod = |uid: &&str| PodState { populated: None, ..samples::pod_state(uid) };
    let all = |id: &u32| Mount { id: *id, point: "/v".into(), ..Mount::default() };
    let table = |id: &u32| Mounts { all: vec![all(id)], source: "t".into(), pid: 1 };
    let tables = mounts.iter().map(|id| (*id, table(id).into())).collect();
    NodeSample {
        at: Monotonic(second * 1_000_000_000),
        begun: Some(Monotonic(second * 1_000_000_000 - 7)),
        pods: pods.iter().map(pod).collect(),
        mounts: podstuck_model::mounts::NodeMounts { tables, host: Some(1) },
        ..NodeSample::default()
    }
}

fn said() -> Said {
    let text = "rpc error: code = NotFound desc = vault";
    let source = "log of kubelet (pid 7), /bank/log";
    Said {
        volume: "kubernetes.io/csi/bank.example^vault".into(),
        complaint: Some(Complaint::DriverError),
        ..Said::new(Component::Kubelet, source, UID, Timestamp::UNIX_EPOCH, text)
    }
}

fn events() -> Vec<Event> {
    let count = samples::count(Call::Rmdir, Outcome::OK, 9);
    let count = Count { bucket: 3, total_ns: 77, min_ns: 2, max_ns: 31, ..count };
    let what = [
        What::Counts(vec![
            count,
            Count { bucket: 9, ..count },
            Count { call: Call::Unlink, ..count },
        ]),
        What::Sample(sample(1, &["a", "b"], &[1, 2]).into()),
        What::Operation(Box::new(operation(2, b"mount"))),
        What::Operation(Box::new(operation(2, b"\xff\n\x1b[2J"))),
        What::Sample(sample(3, &["a", "b"], &[1, 2]).into()),
        // Out of order, and equal to an earlier one but for the times.
        What::Operation(Box::new(Operation { suppressed: 5, ..operation(1, b"mount") })),
        What::Operation(Box::new(operation(4, b"mount"))),
        What::Counts(vec![
            Count { total_ns: 0, min_ns: 0, max_ns: 0, started: None, ..count },
            Count { target_id: 8, ..count },
        ]),
        What::Sample(sample(4, &["b", "c", "a"], &[2, 3]).into()),
        What::Said(Box::new(said())),
        What::Logged(Box::new(Operation {
            logged_in: Some("log of kubelet (pid 7), /bank/log".into()),
            ..operation(1, b"mount")
        })),
        What::Completeness(Completeness { events_lost: 3, ..Completeness::default() }),
        What::Degraded(vec![Degraded {
            place: Some("/bank".into()),
            ..Degraded::new("no look at /bank comes back", &[Feed::HungCalls])
        }]),
        What::WindowEnded,
        What::End(SelfCost { cpu_s: 0.25, ..SelfCost::default() }),
    ];
    let at = |n: u64| Monotonic(2_000_000_000 + n * 100);
    (0..).zip(what).map(|(n, what)| Event { at: at(n), what }).collect()
}

fn record(events: &[Event], redact: bool) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.zst");
    let mut recorder = Recorder::through(served(), &path, redact).unwrap();
    recorder.begin(&run());
    events.iter().for_each(|event| recorder.event(event));
    recorder.finish();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::read(path).unwrap()
}

fn replay(bytes: &[u8]) -> Result<(Vec<Event>, Ending), ReadError> {
    let mut reader = Reader::new(bytes, "x")?;
    let events = reader.by_ref().collect();
    Ok((events, reader.ending().unwrap().clone()))
}

#[test]
fn recorded_events_are_read_back() {
    let (read, ending) = replay(&record(&events(), false)).unwrap();
    assert_eq!(read, events());
    assert_eq!(ending, Ending::Whole);
}

#[test]
fn a_cut_at_any_byte_leaves_the_events_before_it() {
    let whole = record(&events(), false);
    let all = events();
    let mut known = 0;
    for end in 0..whole.len() {
        match replay(&whole[..end]) {
            Ok((read, ending)) => {
                assert_eq!(read, all[..read.len()], "{end}");
                assert!(read.len() >= known, "{end}: what was readable stays so");
                known = read.len();
                // After the last event only the end of the stream follows.
                let whole = read.len() == all.len();
                assert_eq!(ending, if whole { Ending::Whole } else { Ending::Cut }, "{end}");
            }
            Err(error) => assert_eq!(known, 0, "{end}: {error}"),
        }
    }
}

/// As after SIGKILL at each of these moments: only what was flushed is there.
#[test]
fn a_replay_ends_at_the_last_whole_record() {
    let all = events();
    for count in 0..all.len() {
        let mut text = serde_json::to_vec(&run()).unwrap();
        text.push(b'\n');
        let mut last = std::sync::Arc::<NodeSample>::default();
        for event in &all[..count] {
            let line = match &event.what {
                What::Sample(sample) => {
                    let look = delta::Delta::between(&last, sample);
                    last = sample.clone();
                    serde_json::json!({ "at": event.at, "look": look })
                }
                what => serde_json::json!({ "at": event.at, "what": what }),
            };
            text.extend(serde_json::to_vec(&line).unwrap());
            text.push(b'\n');
        }
        for tail in ["", "{\"at\":1,\"wh", "{"] {
            let mut bytes = first_frame(FORMAT);
            let mut stream = zstd::stream::write::Encoder::new(&mut bytes, 3).unwrap();
            std::io::Write::write_all(&mut stream, &text).unwrap();
            std::io::Write::write_all(&mut stream, tail.as_bytes()).unwrap();
            std::io::Write::flush(&mut stream).unwrap();
            drop(stream);
            let (read, ending) = replay(&bytes).unwrap();
            assert_eq!(read, all[..count]);
            assert_eq!(ending, Ending::Cut, "{count} {tail}");
        }
    }
}

/// Their sums would overflow.
#[test]
fn impossible_counts_are_damage() {
    let count = events().into_iter().find_map(|event| match event.what {
        What::Counts(counts) => Some(counts[0]),
        _ => None,
    });
    let count = count.unwrap();
    let of = |count: Count| {
        let at = Monotonic(7);
        let ending = replay(&record(&[Event { at, what: What::Counts(vec![count]) }], false));
        ending.unwrap().1
    };
    assert_eq!(of(count), Ending::Cut);
    for wrong in [Count { calls: u64::MAX, ..count }, Count { total_ns: u64::MAX / 2, ..count }] {
        assert!(matches!(of(wrong), Ending::Damaged(_)), "{wrong:?}");
    }
}

#[test]
fn any_other_file_is_reported_as_no_recording() {
    for foreign in
        [b"".as_slice(), b"{}", b"PK\x03\x04 and more", &[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1]]
    {
        assert!(matches!(replay(foreign), Err(ReadError::Foreign(_))), "{foreign:?}");
    }
    for other in [FORMAT - 1, FORMAT + 1] {
        let read = replay(&first_frame(other));
        assert!(matches!(read, Err(ReadError::Format { found, .. }) if found == other));
    }
    assert!(matches!(replay(&first_frame(FORMAT)), Err(ReadError::Empty(_))));
}

#[test]
fn a_damaged_line_ends_a_replay_with_its_reason() {
    let mut whole = record(&events(), false);
    let middle = whole.len() / 2;
    whole[middle] ^= 0xff;
    if let Ok((read, ending)) = replay(&whole) {
        assert_eq!(read, events()[..read.len()]);
        assert!(matches!(ending, Ending::Damaged(_) | Ending::Cut), "{ending:?}");
    }
}

#[test]
fn an_existing_file_is_left_alone() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(Recorder::through(served(), file.path(), false), Err(RecordError::Exists(_))));
    let nowhere = Path::new("/nonexistent/x");
    assert!(matches!(Recorder::through(served(), nowhere, false), Err(RecordError::Create(..))));
}

#[test]
fn redacted_names_are_gone_and_the_rest_is_as_it_was() {
    let bytes = record(&events(), true);
    let text = zstd::decode_all(bytes.as_slice()).unwrap();
    let text = String::from_utf8(text).unwrap();
    for name in ["bank", "vault", "\\u001b", "pv/"] {
        assert!(!text.contains(name), "{name} in {text}");
    }
    let (read, ending) = replay(&bytes).unwrap();
    assert_eq!((read.len(), ending), (events().len(), Ending::Whole));
    let What::Operation(op) = &read[2].what else { panic!("{:?}", read[2]) };
    assert!(!text.contains(UID), "{text}");
    let uid = &op.target.pod.as_ref().unwrap().uid;
    let expected = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/");
    let path = op.path.to_str().unwrap();
    assert!(path.starts_with(&expected) && path.ends_with("/mount"), "{path}");
    assert_eq!((op.actor.comm.as_str(), op.call), ("kubelet", Call::UnlinkatDir));
    let What::Operation(other) = &read[3].what else { panic!("{:?}", read[3]) };
    assert_eq!(op.target, other.target, "the same each time");
    let said = read.iter().find_map(|event| match &event.what {
        What::Said(said) => Some(said),
        _ => None,
    });
    assert_eq!(said.unwrap().complaint, Some(Complaint::DriverError));
}

/// Feeds any file content to the engine.
#[test]
fn fuzz_recording() {
    podstuck_fuzz::fuzz("recording", |input| {
        let mut file = first_frame(FORMAT);
        file.extend(zstd::encode_all(input, 1).unwrap());
        let Ok(mut reader) = Reader::new(&file[..], "x") else { return };
        let mut engine = Engine::new(reader.run().clone());
        for event in &mut reader {
            let _ = engine.take(&event);
        }
        assert!(reader.ending().is_some());
    });
}
