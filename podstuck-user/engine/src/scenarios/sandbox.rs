//! Sandboxes that their runtime cannot clear away, with the original text of containerd and CRI-O.

use jiff::Timestamp;

use super::{
    play::{Node, Play, UID, sample},
    removals::Plays,
    states::of_pod,
};
use crate::{
    model::{
        holder::{Holder, How, Through},
        identity::{Component, Pod},
        node::NodeSample,
        runtime::Runtime,
        said::{Complaint, Said},
    },
    testing::{self, holder},
};

const NETNS: &str = "/var/run/netns/cni-45ff10e9-dcc1-b779-f1a1-3515a5d56e61";
const HOST: &str = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:20 / /run rw - tmpfs tmpfs rw\n";

/// A mount of the namespace on its file, below one of the paths to /run.
fn netns(id: u32, parent: u32, run: &str) -> String {
    let name = NETNS.rsplit('/').next().unwrap_or_default();
    format!("{id} {parent} 0:4 net:[4026532001] {run}/netns/{name} rw - nsfs nsfs rw\n")
}

/// In containerd 2.4's words; with and without a visible user.
pub(super) fn image_volume_busy() -> Plays {
    let id = "7fa01d7920d2040816f34291396403ea06c52a4b9e22c74806212a5146758783";
    let path = format!("/run/containerd/io.containerd.grpc.v1.cri/image-volumes/{id}/{id}");
    let text = format!(
        "StopPodSandbox for \"{id}\" failed: rpc error: code = Unknown desc = failed to cleanup image mounts for \
         sandbox \"{id}\": failed to unmount image volume component \"{path}\": failed to unmount target {path}: \
         device or resource busy"
    );
    let user = holder(How::Cwd, Through::Itself, Some(true));
    let mut plays = Vec::new();
    for (title, holders) in [
        ("an image volume in use", vec![user]),
        ("an image volume that no process uses any more", Vec::new()),
    ] {
        let mut play = Play::new(Node { holders, ..Node::default() });
        for second in [450, 570] {
            let at = Timestamp::from_second(second).unwrap_or_default();
            let said =
                Said::new(Component::Containerd, "log of containerd (pid 9)", UID, at, &text);
            play.said(600.0, Said { complaint: Some(Complaint::ImageVolumeBusy), ..said });
        }
        for second in [602.0, 604.0] {
            let pods = vec![of_pod(false, Vec::new())];
            let runtimes = vec![runtime(Component::Containerd)];
            play.sample(NodeSample { pods, runtimes, ..sample(second) });
        }
        play.sample(sample(606.0));
        plays.push((title, play));
    }
    plays
}

/// virtcontainers#435, in the words of containerd's snapshotter; with and without a visible holder of the device.
pub(super) fn device_busy() -> Plays {
    let id = "7fa01d7920d2040816f34291396403ea06c52a4b9e22c74806212a5146758783";
    let text = format!(
        "StopPodSandbox \"{id}\" from runtime service failed: rpc error: code = Unknown desc = failed to stop container: \
         failed to deactivate device \"pool-snap-12\": failed to deactivate device: device or resource busy"
    );
    let own = Holder {
        pod: Some(Pod { uid: UID.into(), namespace: None, name: None }),
        comm: Some("qemu-system-x86".into()),
        ..holder(How::Fd, Through::Itself, None)
    };
    let other = holder(How::Fd, Through::Itself, None);
    let later = Holder { started: Some(58_500), ..other.clone() };
    let mut plays = Vec::new();
    for (title, holders) in [
        ("a device that the sandbox's machine has open", vec![own]),
        ("a device that a process of the node has open", vec![other]),
        ("a device that no process has open any more", Vec::new()),
        ("a device whose name was given to another process since", vec![later]),
    ] {
        let mut play = Play::new(Node { holders, ..Node::default() });
        for second in [450, 570] {
            let at = Timestamp::from_second(second).unwrap_or_default();
            let said = Said::new(Component::Kubelet, "log of kubelet (pid 9)", UID, at, &text);
            play.said(600.0, Said { complaint: Some(Complaint::DeviceBusy), ..said });
        }
        for second in [602.0, 604.0] {
            let pods = vec![of_pod(false, Vec::new())];
            let runtimes = vec![runtime(Component::CriO)];
            play.sample(NodeSample { pods, runtimes, ..sample(second) });
        }
        play.sample(sample(606.0));
        plays.push((title, play));
    }
    plays
}

fn runtime(component: Component) -> Runtime {
    Runtime { pid: 9, mnt_ns: Some(4), ..testing::runtime(component) }
}

/// Logged twice; the mount is seen, and gone at last.
pub(super) fn sandbox_busy() -> Plays {
    let sandbox = "921d9d5a5f2e1f87eb26d6620d3a91fd9bd0a69efea8ba56680581a8869b361e";
    let stopped = format!(
        "StopPodSandbox for \"{sandbox}\" failed: failed to remove network namespace for sandbox \"{sandbox}\": \
         failed to remove netns: unlinkat {NETNS}: device or resource busy"
    );
    let shm = format!("/run/containers/storage/overlay-containers/{sandbox}/userdata/shm");
    let removed =
        format!("failed to remove pod sandbox {sandbox}: unlinkat {shm}: device or resource busy");
    let other_way = "3 1 0:20 / /mnt/run rw - tmpfs tmpfs rw\n";
    let (netns_busy, shm_busy) = (Complaint::NetnsBusy, Complaint::ShmBusy);
    let mut plays = Vec::new();
    for (title, component, complaint, text, mounts) in [
        (
            "two mounts of a network namespace",
            Component::Containerd,
            netns_busy,
            &stopped,
            netns(4, 2, "/run") + &netns(5, 4, "/run"),
        ),
        (
            "a network namespace that is mounted by another way",
            Component::Containerd,
            netns_busy,
            &stopped,
            other_way.to_owned() + &netns(4, 3, "/mnt/run"),
        ),
        (
            "a network namespace that no process has mounted any more",
            Component::Containerd,
            netns_busy,
            &stopped,
            String::new(),
        ),
        (
            "shared memory that is left",
            Component::CriO,
            shm_busy,
            &removed,
            format!("4 2 0:30 / {shm} rw - tmpfs shm rw\n"),
        ),
    ] {
        let mounts = Some(HOST.to_owned() + &mounts);
        let mut play = Play::new(Node { mounts, ..Node::default() });
        for second in [450, 570] {
            let source = format!("log of {} (pid 9)", component.name());
            let at = Timestamp::from_second(second).unwrap_or_default();
            let said = Said::new(component, &source, UID, at, text);
            play.said(600.0, Said { complaint: Some(complaint), ..said });
        }
        let runtime = runtime(component);
        for second in [602.0, 604.0] {
            let pods = vec![of_pod(false, Vec::new())];
            play.sample(NodeSample { pods, runtimes: vec![runtime.clone()], ..sample(second) });
        }
        play.sample(sample(606.0));
        plays.push((title, play));
    }
    plays
}
