//! What a case needs beside the pod's files and mounts: other processes, devices, file systems.
//! One file for each.

mod writer;

use std::any::Any;

use anyhow::Result;

use super::layout::Pod;

/// Something that is put in place before the removal begins.
///
/// Those of the namespace are staged in the removal process, after the volumes are mounted; the
/// others in the lab's own process, once the files are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prop {
    /// Somebody who goes on writing into the pod's emptyDir.
    Writer,
}

/// Undoes what was staged when it is dropped.
pub(super) type Staged = Box<dyn Any>;

impl Prop {
    /// Whether it belongs into the lab's mount namespace.
    fn in_namespace(self) -> bool {
        match self {
            Self::Writer => false,
        }
    }

    fn stage(self, pod: &Pod) -> Result<Staged> {
        match self {
            Self::Writer => writer::stage(pod),
        }
    }
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
