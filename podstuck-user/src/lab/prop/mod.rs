//! What a case needs beside the pod's files and mounts: other processes, devices, file systems.
//! One file for each.

mod disk;
mod fuse;
mod node_disk;
mod process;
mod script;
mod survivor;
mod swap;
mod writer;

use std::{any::Any, path::PathBuf};

use anyhow::{Context, Result};

use super::{
    cases::find,
    keeper::Task,
    layout::{Pod, foreign_data},
};
use process::View;

/// Something that is put in place before the removal begins.
///
/// Those of the namespace are staged in the removal process, after the volumes are mounted; the
/// others in the lab's own process, once the files are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prop {
    /// Somebody who goes on writing into the pod's emptyDir.
    Writer,
    /// A process works in the volume.
    HostProcess,
    /// A process of an agent works in its own copy of the volume, which receives unmounts.
    Agent,
    /// A process in a mount namespace of its own that has the volume mounted elsewhere.
    PrivateCopy,
    /// The volume has an active swap file.
    SwapFile,
    /// A process stays in the pod's control group.
    GroupMember,
    /// The pod's control group is frozen, and its container was killed.
    FrozenGroup,
    /// The pod's container was killed, and waits for a file system that is frozen.
    Unkillable,
    /// The file system of kubelet's root is full.
    FullDisk,
    /// The file system of kubelet's root is read-only.
    ReadOnlyDisk,
    /// A FUSE file system in the emptyDir `data` whose server answers nothing.
    SilentServer,
    /// The same, and the server is gone.
    DeadServer,
    /// The emptyDirs lie on a file system that is frozen.
    Frozen,
    /// The volume `pv` is on a disk that is slow to write.
    SlowDisk,
    /// The volume `pv` is on a disk that stops at the first write.
    StoppedDisk,
}

/// Undoes what was staged when it is dropped.
pub(super) type Staged = Box<dyn Any>;

impl Prop {
    /// Whether it belongs into the lab's mount namespace.
    fn in_namespace(self) -> bool {
        match self {
            Self::Writer | Self::GroupMember | Self::FrozenGroup | Self::Unkillable => false,
            Self::HostProcess
            | Self::Agent
            | Self::PrivateCopy
            | Self::SwapFile
            | Self::SilentServer
            | Self::DeadServer
            | Self::Frozen
            | Self::SlowDisk
            | Self::StoppedDisk
            | Self::FullDisk
            | Self::ReadOnlyDisk => true,
        }
    }

    fn stage(self, pod: &Pod) -> Result<Staged> {
        let elsewhere = foreign_data(&pod.root);
        let volumes = pod.directory().join("volumes");
        let data = volumes.join("kubernetes.io~empty-dir/data");
        let disk = volumes.join("kubernetes.io~iscsi/pv");
        match self {
            Self::Writer => writer::stage(pod),
            Self::HostProcess => process::stage(&subject(pod)?, View::Same, &elsewhere),
            Self::Agent => process::stage(&subject(pod)?, View::Slave, &elsewhere),
            Self::PrivateCopy => process::stage(&subject(pod)?, View::Private, &elsewhere),
            Self::SwapFile => swap::stage(&subject(pod)?),
            Self::GroupMember => survivor::stays(pod),
            Self::FrozenGroup => survivor::frozen(pod),
            Self::Unkillable => survivor::unkillable(pod),
            Self::FullDisk => node_disk::fill(pod),
            Self::ReadOnlyDisk => node_disk::make_read_only(pod),
            Self::SilentServer => Ok(Box::new(fuse::silent(&data.join("m"))?)),
            Self::DeadServer => Ok(Box::new(fuse::dead(&data.join("m"))?)),
            Self::Frozen => Ok(Box::new(disk::frozen(pod, &data)?)),
            Self::SlowDisk => Ok(Box::new(disk::served(pod, &disk, Task::Slow)?)),
            Self::StoppedDisk => Ok(Box::new(disk::served(pod, &disk, Task::Stops)?)),
        }
    }
}

/// The volume that the pod's case is about.
fn subject(pod: &Pod) -> Result<PathBuf> {
    let volume = find(&pod.name).and_then(|case| case.subject());
    volume.map(|volume| pod.content(volume)).context("the case has no volume")
}

/// Prepares the mount namespace before the volumes are mounted.
pub(super) fn before_volumes(props: &[Prop], pod: &Pod) -> Result<()> {
    let on_disk = |prop: &Prop| matches!(prop, Prop::FullDisk | Prop::ReadOnlyDisk);
    if props.iter().any(on_disk) { node_disk::move_root(pod) } else { Ok(()) }
}

/// Puts in place what belongs into the mount namespace, or what does not. To be dropped from the
/// last to the first.
pub(super) fn stage_all(props: &[Prop], pod: &Pod, in_namespace: bool) -> Result<Stage> {
    let mut stage = Stage::default();
    for prop in props.iter().filter(|prop| prop.in_namespace() == in_namespace) {
        stage.0.push(prop.stage(pod)?);
    }
    Ok(stage)
}

/// All that was staged.
#[derive(Default)]
pub(super) struct Stage(Vec<Staged>);

impl Drop for Stage {
    fn drop(&mut self) {
        while let Some(staged) = self.0.pop() {
            drop(staged);
        }
    }
}
