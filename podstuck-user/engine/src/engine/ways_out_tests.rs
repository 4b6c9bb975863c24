use super::*;
use crate::{
    causes::device::causes::STILL_REFERENCED,
    engine::{Engine, Output},
    event::{Event, What},
    kubelet_steps::KubeletSteps,
    model::{
        call::Call,
        errno::Errno,
        finding::Finding,
        holder::{How, Through},
        identity::{Pod, Target},
        path::JsonPath,
    },
    query::Answer,
    testing::{VOLUME, context, failed, holder, holder_of, mounts, run, snapshot},
    unmounts::Unmounts,
};

/// A mount in an emptyDir, whose removal by kubelet fails twice; these holders use it.
fn played(holders: &[Holder]) -> (Engine, Vec<Finding>) {
    played_with(|path| {
        assert_eq!(path, std::path::Path::new(VOLUME).join("m"));
        Some(holders.to_vec())
    })
}

/// The same, with the holders of each mount; `None` if the search is not answered.
fn played_with(
    holders: impl Fn(&std::path::Path) -> Option<Vec<Holder>>,
) -> (Engine, Vec<Finding>) {
    let mut engine = Engine::new(run());
    let mut findings = Vec::new();
    let mut events: VecDeque<Event> = [1.0, 1.5]
        .map(|second| failed(Call::UnlinkatDir, Errno::EBUSY, "m", second))
        .map(|op| Event { at: op.end, what: What::Operation(Box::new(op)) })
        .into();
    while let Some(event) = events.pop_front() {
        for output in engine.take(&event) {
            let query = match output {
                Output::Query(query) => query,
                Output::Finding(finding) => {
                    findings.push(*finding);
                    continue;
                }
                _ => continue,
            };
            let table = format!("9 8 8:16 /srv {VOLUME}/m rw - ext4 /dev/sdb rw\n");
            let answer = match &query.wants {
                Wants::Mounts(_) => Answer::Mounts(Some(mounts(&table))),
                Wants::Holders(About::Mount { path, .. }) => match holders(&path.0) {
                    Some(found) => Answer::Holders(Ok(snapshot(found))),
                    None => continue,
                },
                Wants::FuseMounts(_) => Answer::FuseMounts(Vec::new()),
                other => panic!("{other:?}"),
            };
            let what = What::Answer { query, answer: Box::new(answer) };
            events.push_back(Event { at: event.at, what });
        }
    }
    (engine, findings)
}

fn commands(engine: &Engine) -> Vec<String> {
    let finding = engine.findings().next().unwrap();
    finding.remedies.iter().map(|remedy| remedy.words().to_owned()).collect()
}

#[test]
fn who_would_make_the_advised_unmount_fail_is_named_and_lets_go_first() {
    let backup = holder(How::Fd, Through::Itself, Some(true));
    let (engine, findings) = played(&[backup]);
    let commands = commands(&engine);
    assert!(commands[0].ends_with(" && kill 77"), "{commands:?}");
    assert!(commands[1].ends_with(&format!(" --namespace 42 '{VOLUME}/m'")), "{commands:?}");
    let last = findings.last().unwrap();
    assert_eq!(holder_of(&last.held_by), "backup (pid 77)", "it is reported at once");
    assert!(
        last.evidence.iter().any(|it| it.fact.contains("fails as long as the mount is in use"))
    );
}

#[test]
fn an_unmount_that_nothing_stands_against_stays_as_it_is() {
    let mut own = holder(How::Cwd, Through::Itself, Some(true));
    own.pod = Some(Pod { uid: "another".into(), namespace: None, name: None });
    assert_eq!(played(&[own]).0.findings().next().unwrap().remedies.len(), 2);
    let private = holder(How::Mount, Through::OtherMount, Some(false));
    let (engine, findings) = played(&[private]);
    assert!(commands(&engine)[0].ends_with(&format!(" --namespace 42 '{VOLUME}/m'")));
    assert!(findings.iter().all(|finding| finding.held_by.is_none()));
}

#[test]
fn who_mounted_it_is_not_said_without_proof_nor_that_nothing_was_deleted_behind_it() {
    let (_, findings) = played(&[]);
    let finding = findings.last().unwrap();
    assert_eq!(finding.id.as_str(), "emptydir-bidirectional-submount");
    assert!(!finding.explanation.contains("A container mounted"), "{}", finding.explanation);
    let crosses =
        |it: &crate::model::evidence::RuledOut| it.cause.as_str() == "removal-crosses-mount";
    assert!(!finding.likely_causes_ruled_out.iter().any(crosses));
}

/// For any rule: each command that may be refused leads to a search.
#[test]
fn every_unmount_that_can_be_refused_is_looked_for() {
    let op = failed(Call::Umount2, Errno::EBUSY, "", 1.0);
    let (known, steps) = (Unmounts::default(), KubeletSteps::default());
    let context = context(op.end, &known, &steps, &[]);
    let asked = |words: &str| {
        let mut draft = Draft::about(TrackerId::PinnedDevice, &STILL_REFERENCED, &op);
        let view = View::in_namespace(&context, 5, 77);
        draft.remedy(view.on_mount(words, "/there".as_ref(), Some(9)), "low");
        let mut all = WaysOut::default();
        all.amend(&mut draft, op.end);
        all.ask(true, op.end).into_iter().map(|query| query.wants).collect::<Vec<_>>()
    };
    let path = JsonPath("/there".into());
    let search = Wants::Holders(About::Mount { pid: 77, namespace: 5, path });
    for refused in ["umount", "umount -f"] {
        assert_eq!(asked(refused), std::slice::from_ref(&search), "{refused}");
    }
    for never in ["umount -l", "umount -f -l", "mount -o remount,bind,ro"] {
        assert_eq!(asked(never), [], "{never}");
    }
}

#[test]
fn who_uses_what_is_mounted_on_it_lets_go_before_that() {
    let within = std::path::Path::new(VOLUME).join("m");
    let nested = Holder {
        object: JsonPath(within.join("n")),
        nested: Some(10),
        pid: None,
        ..holder(How::NestedMount, Through::Itself, Some(true))
    };
    let (engine, _) = played_with(|path| {
        let user = holder(How::Cwd, Through::Itself, Some(true));
        Some(vec![if path == within { nested.clone() } else { user }])
    });
    let commands = commands(&engine);
    assert!(commands[0].ends_with(" && kill 77"), "{commands:?}");
    assert!(commands[1].ends_with(&format!(" '{VOLUME}/m/n'")), "{commands:?}");
    assert!(commands[2].ends_with(&format!(" '{VOLUME}/m'")), "{commands:?}");
}

#[test]
fn without_a_search_the_finding_says_so() {
    let (mut engine, findings) = played_with(|_| None);
    let says =
        |finding: &Finding| finding.evidence.iter().any(|it| it.fact.contains("has not ended yet"));
    assert!(!findings.is_empty() && !findings.iter().any(says));
    let at = |second: u64| Event {
        at: Monotonic(second * 1_000_000_000),
        what: What::Counts(Vec::new()),
    };
    let late: Vec<Output> = [3, 6, 7].iter().flat_map(|second| engine.take(&at(*second))).collect();
    let is_it = |output: &&Output| matches!(output, Output::Finding(finding) if says(finding));
    assert_eq!(late.iter().filter(is_it).count(), 1, "{late:?}");
}

#[test]
fn the_pods_own_processes_are_named_and_end_with_it() {
    let pod = Pod { uid: "own".into(), namespace: None, name: None };
    let op = failed(Call::UnlinkatDir, Errno::EBUSY, "m", 1.0);
    let mut draft = Draft::about(TrackerId::Busy, &STILL_REFERENCED, &op);
    draft.target = Target { pod: Some(pod.clone()), ..Target::clone(&op.target) }.into();
    let mut own = holder(How::Cwd, Through::Itself, Some(true));
    own.pod = Some(pod);
    let unmount = Unmount { process: None, seen_by: Some((1, 1)), point: "/m".into() };
    assert_eq!(add(&mut draft, &unmount, &snapshot(vec![own])), []);
    assert_eq!(draft.unmounting, Unmounting::Refused);
    let fact = &draft.evidence[0].fact;
    let words = "`umount /m` fails until the pod's own processes have ended: backup (pid 77)";
    assert!(fact.starts_with(words), "{fact}");
    // Another pod's processes are not said to end by themselves.
    let other = holder(How::Cwd, Through::Itself, Some(true));
    assert_eq!(add(&mut draft, &unmount, &snapshot(vec![other])).len(), 1);
}
