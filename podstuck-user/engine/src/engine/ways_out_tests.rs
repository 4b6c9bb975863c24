use nix::errno::Errno;

use super::*;
use crate::{
    engine::{Engine, Output},
    event::{Event, What},
    model::{
        call::Call,
        finding::Finding,
        holder::{How, Through},
        identity::Pod,
    },
    query::Answer,
    testing::{VOLUME, failed, holder, mounts, run, snapshot},
};

/// Something is mounted in an emptyDir, which kubelet fails to remove twice; who uses it is as given.
fn played(holders: &[Holder]) -> (Engine, Vec<Finding>) {
    let mut engine = Engine::new(run());
    let mut told = Vec::new();
    let mut events: VecDeque<Event> = [1.0, 1.5]
        .map(|second| failed(Call::UnlinkatDir, Errno::EBUSY, "m", second))
        .map(|op| Event { at: op.end, what: What::Operation(Box::new(op)) })
        .into();
    while let Some(event) = events.pop_front() {
        for output in engine.take(&event) {
            let query = match output {
                Output::Query(query) => query,
                Output::Finding(finding) => {
                    told.push(*finding);
                    continue;
                }
                _ => continue,
            };
            let table = format!("9 8 8:16 /srv {VOLUME}/m rw - ext4 /dev/sdb rw\n");
            let answer = match &query.wants {
                Wants::Mounts { .. } => Answer::Mounts(Some(mounts(&table))),
                Wants::Holders(About::Mount { path, .. }) => {
                    assert_eq!(path.0, std::path::Path::new(VOLUME).join("m"));
                    Answer::Holders(Ok(snapshot(holders.to_vec())))
                }
                Wants::FuseMounts { .. } => Answer::FuseMounts(Vec::new()),
                other => panic!("{other:?}"),
            };
            let what = What::Answer { query, answer: Box::new(answer) };
            events.push_back(Event { at: event.at, what });
        }
    }
    (engine, told)
}

fn commands(engine: &Engine) -> Vec<String> {
    let finding = engine.findings().next().unwrap();
    finding.remedies.iter().map(|remedy| remedy.words().to_owned()).collect()
}

#[test]
fn who_would_make_the_advised_unmount_fail_is_named_and_lets_go_first() {
    let backup = holder(How::Fd, Through::Itself, Some(true));
    let (engine, told) = played(&[backup]);
    let commands = commands(&engine);
    assert!(commands[0].ends_with(" && kill 77"), "{commands:?}");
    assert!(commands[1].ends_with(&format!(" --namespace 42 '{VOLUME}/m'")), "{commands:?}");
    let last = told.last().unwrap();
    assert_eq!(last.held_by.as_deref(), Some("backup (pid 77)"), "it is told at once");
    assert!(last.evidence.iter().any(|it| it.fact.contains("is refused as long as it is in use")));
}

#[test]
fn an_unmount_that_nothing_stands_against_stays_as_it_is() {
    let mut own = holder(How::Cwd, Through::Itself, Some(true));
    own.pod = Some(Pod { uid: "another".into(), namespace: None, name: None });
    assert_eq!(played(&[own]).0.findings().next().unwrap().remedies.len(), 2);
    let private = holder(How::Mount, Through::OtherMount, Some(false));
    let (engine, told) = played(&[private]);
    assert!(commands(&engine)[0].ends_with(&format!(" --namespace 42 '{VOLUME}/m'")));
    assert!(told.iter().all(|finding| finding.held_by.is_none()));
}

#[test]
fn who_mounted_it_is_not_said_without_proof_nor_that_nothing_was_deleted_behind_it() {
    let (_, told) = played(&[]);
    let finding = told.last().unwrap();
    assert_eq!(finding.id.as_str(), "emptydir-bidirectional-submount");
    assert!(!finding.explanation.contains("A container mounted"), "{}", finding.explanation);
    let crosses =
        |it: &crate::model::evidence::RuledOut| it.cause.as_str() == "removal-crosses-mount";
    assert!(!finding.likely_causes_ruled_out.iter().any(crosses));
}
