//! Tests of the verdicts about crowded mount tables.

use std::{sync::Arc, time::Duration};

use podstuck_common::record::reason;

use crate::{
    causes::mount_table::MountStorms,
    event::What,
    model::{
        call::{Call, Outcome},
        crowd::Crowd,
        errno::Errno,
        evidence::Certainty,
        identity::{Component, Target},
        node::NodeSample,
        time::Monotonic,
    },
    testing::{Alone, actor, failed, found},
    verdict::{Draft, Verdict},
};

fn crowd(mounts: usize) -> Crowd {
    Crowd {
        namespace: 4,
        pid: 1,
        source: "/proc/1/mountinfo".into(),
        mounts,
        below: "/srv/agent".into(),
        are_below: mounts - 100,
        what: "directory /data of /dev/sda1 (ext4), device 8:1".into(),
        times: mounts - 120,
    }
}

fn look(storms: &mut Alone<MountStorms>, second: u64, crowded: Vec<Crowd>) -> Vec<Verdict> {
    let at = Monotonic(second * 1_000_000_000);
    let sample = NodeSample { at, crowded, ..NodeSample::default() };
    storms.take(at, What::Sample(Arc::new(sample))).verdicts
}

fn finding(storms: &mut Alone<MountStorms>, second: u64, mounts: usize) -> Option<Draft> {
    found(look(storms, second, vec![crowd(mounts)])).pop()
}

/// An unmount of a volume of this plugin that took three seconds.
fn slow(plugin: &str, second: f64, component: Component) -> What {
    let mut op = failed(Call::Umount2, Errno::EIO, "", second);
    let mut target = Target::clone(&op.target);
    if let Some(volume) = &mut target.volume {
        volume.plugin = plugin.into();
    }
    (op.target, op.outcome) = (Arc::new(target), Outcome::OK);
    (op.reason, op.duration) = (reason::SLOW, Duration::from_secs(3));
    op.actor = Arc::new(actor(component));
    What::Operation(Box::new(op))
}

#[test]
fn very_many_mounts_are_a_likely_cause_of_slowness_and_no_more() {
    let mut storms = Alone::<MountStorms>::new();
    assert!(finding(&mut storms, 2, 20_000).is_none(), "a moment is nothing");
    let draft = finding(&mut storms, 8, 30_000).unwrap();
    draft.assert_is("mount-table-storm", Certainty::Likely);
    assert_eq!((draft.blocks_deletion, draft.first), (None, Monotonic(2_000_000_000)));
    assert!(draft.evidence[0].fact.starts_with("30000 mounts"), "{draft:?}");
    let over = look(&mut storms, 10, Vec::new());
    assert!(matches!(over[..], [Verdict::Over { .. }]), "{over:?}");
    assert!(look(&mut storms, 12, Vec::new()).is_empty());
}

#[test]
fn unmounts_that_write_nothing_and_are_slow_make_it_firm() {
    let at = |second: u64| Monotonic(second * 1_000_000_000);
    let certainty_after = |ops: &[(&str, Component)]| {
        let mut storms = Alone::<MountStorms>::new();
        finding(&mut storms, 2, 20_000);
        for (plugin, component) in ops {
            storms.take(at(5), slow(plugin, 5.0, *component));
        }
        finding(&mut storms, 8, 20_000).map(|draft| draft.certainty())
    };
    let (kubelet, tokens) = (Component::Kubelet, "kubernetes.io/projected");
    assert_eq!(certainty_after(&[(tokens, kubelet); 2]), Some(Certainty::Firm));
    assert_eq!(
        certainty_after(&[(tokens, kubelet)]),
        Some(Certainty::Likely),
        "one may be a moment's"
    );
    let disk = "kubernetes.io/csi";
    assert_eq!(
        certainty_after(&[(disk, kubelet); 2]),
        Some(Certainty::Likely),
        "it may have written"
    );
    let workload = [(tokens, Component::Workload); 2];
    assert_eq!(certainty_after(&workload), Some(Certainty::Likely), "not the node's own");
    let mut storms = Alone::<MountStorms>::new();
    storms.take(at(5), slow(tokens, 5.0, kubelet));
    storms.take(at(6), slow(tokens, 6.0, kubelet));
    finding(&mut storms, 1000, 20_000);
    let late = finding(&mut storms, 1010, 20_000).map(|draft| draft.certainty());
    assert_eq!(late, Some(Certainty::Likely), "that was long ago");
}
