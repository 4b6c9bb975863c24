//! Incidents that show in mount tables, and in the paths by which mounts are reached.

use std::time::Duration;

use podstuck_common::record::reason;

use super::{
    play::{Node, Play, on, sample, target},
    removals::Plays,
};
use crate::model::{
    call::{Call, Outcome},
    crowd::Crowd,
    errno::Errno,
    linked_root::LinkedRoot,
    node::NodeSample,
};

const TOKENS: &str = "kubernetes.io~projected/kube-api-access-x";

/// A volume in memory below a root that is a symbolic link; its removal fails.
pub(super) fn linked_root() -> Plays {
    let root = target(TOKENS).1.root;
    let once = format!(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / {} rw - tmpfs tmpfs rw\n",
        root.display()
    );
    let twice = format!("{once}3 2 0:10 / {} rw - tmpfs tmpfs rw\n", root.display());
    let link = LinkedRoot {
        named: "/var/lib/kubelet".into(),
        link: "/var/lib/kubelet".into(),
        leads_to: "/k".into(),
    };
    let mut plays = Vec::new();
    for (title, mounts, linked, by_link) in [
        ("mounted once, behind a link", &once, true, false),
        ("mounted once, and removed by the link", &once, true, true),
        ("mounted twice, behind a link", &twice, true, false),
        ("mounted twice, and removed by the link", &twice, true, true),
        ("mounted twice, and no link", &twice, false, false),
    ] {
        let mut play = Play::new(Node { mounts: Some(mounts.clone()), ..Node::default() });
        let linked = if linked { vec![link.clone()] } else { Vec::new() };
        play.sample(NodeSample { linked, ..sample(2.0) });
        for second in [5.0, 5.5, 6.5] {
            let mut op = on(TOKENS, Call::UnlinkatDir, Errno::EBUSY as i32, "", second);
            if by_link && let Ok(below) = root.strip_prefix(&link.leads_to) {
                op.path = link.named.join(below);
            }
            play.op(op);
        }
        plays.push((title, play));
    }
    plays
}

/// Very many mounts, then slow unmounts of tokens beside them, then none.
pub(super) fn mount_storm() -> Plays {
    let crowd = Crowd {
        namespace: 1,
        pid: 1,
        source: "/proc/1/mountinfo".into(),
        mounts: 31_200,
        below: "/srv/agent/runs".into(),
        are_below: 30_000,
        what: "directory /data of /dev/sda1 (ext4), device 8:1".into(),
        times: 30_000,
    };
    let now = |second| NodeSample { crowded: vec![crowd.clone()], ..sample(second) };
    let mut play = Play::new(Node::default());
    for second in [2.0, 8.0] {
        play.sample(now(second));
    }
    for second in [9.0, 13.0] {
        let mut op = on(TOKENS, Call::Umount2, 0, "", second);
        (op.outcome, op.reason) = (Outcome::OK, reason::SLOW);
        op.duration = Duration::from_millis(2700);
        play.op(op);
    }
    play.sample(now(14.0));
    play.sample(sample(16.0));
    vec![("a directory that is mounted again and again", play)]
}
