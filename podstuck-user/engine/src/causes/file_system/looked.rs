//! A volume's file system that has failed, as the look shows with which a driver, or kubelet, begins: neither comes to the
//! unmount, so that no call fails. The log names the look; the mount table and the device prove the state.

use std::{collections::BTreeSet, sync::Arc};

use nix::errno::Errno;

use crate::{
    causes::{
        file_system::{
            causes::{DEVICE_ERROR, STALE_HANDLE},
            verdict,
        },
        shared::{sharers, stat_errors::ToldLooks},
    },
    command::View,
    ids,
    model::{
        file_system::{FileSystem, is_fuse},
        finding::Severity,
        node::NodeSample,
        path::safe_path,
        said::Said,
    },
    query::Query,
    tracker::{Context, Steps, TrackerId},
    verdict::Draft,
};

/// What a file system gives that has failed.
const FAILED: [Errno; 6] =
    [Errno::EIO, Errno::EUCLEAN, Errno::ESHUTDOWN, Errno::ENODEV, Errno::ENXIO, Errno::ESTALE];

/// Looks at volumes that failed, and what they are on.
#[derive(Default)]
pub(crate) struct Looked {
    told: ToldLooks,
    last: Option<Arc<NodeSample>>,
    /// Targets of which something was found.
    found: BTreeSet<u64>,
}

impl Looked {
    pub(super) fn listen(&mut self, context: &Context<'_>, said: &Said) {
        let failed = |errno: Option<Errno>| errno.is_some_and(|errno| FAILED.contains(&errno));
        if let Some(look) = said.looked.as_ref().filter(|look| failed(look.outcome.errno())) {
            self.told.listen(context, said, look);
        }
    }

    /// Asks what those volumes are on that are still mounted.
    pub(super) fn sampled(
        &mut self,
        context: &Context<'_>,
        sample: &Arc<NodeSample>,
        steps: &mut Steps,
    ) {
        self.last = Some(sample.clone());
        self.told.ask(TrackerId::FileSystem, (context, sample), &mut self.found, steps);
    }

    /// The finding, where the file system is proven to have failed.
    pub(super) fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        fs: &FileSystem,
    ) -> Option<Draft> {
        let told = self.told.of(&query.path)?;
        let errno = told.look.outcome.errno()?;
        let is_served = is_fuse(&fs.fs_type) || verdict::is_served(fs);
        let cause = match errno {
            Errno::ESTALE => fs.fs_type.starts_with("nfs").then_some(&STALE_HANDLE)?,
            _ => (!is_served && verdict::has_failed(fs)).then_some(&DEVICE_ERROR)?,
        };
        let sample = self.last.as_deref()?;
        let (pod, volume) = sample.volume(query.target_id)?;
        let (pid, namespace) = pod.seen_by?;
        // The mount of the volume itself, or of a subPath: no other is unmounted on the strength of this.
        let is_its = volume.mounts.iter().any(|mount| mount.point == fs.point);
        if !is_its && !fs.point.starts_with(&volume.path) {
            return None;
        }
        let (tracker, target) = (TrackerId::FileSystem, volume.target.clone());
        let (id, path, at) = (query.target_id, query.path.clone(), context.now);
        let mut draft = Draft::about_state(tracker, cause, id, target, path, at);
        told.logged.tell(&mut draft);
        (draft.blocks_deletion, draft.severity) = (Some(true), Severity::Critical);
        verdict::describe(&mut draft, fs);
        let point = safe_path(&fs.point).into_owned();
        draft.explanation = format!(
            "{} The driver, or kubelet, looks at the volume before it unmounts it, and gives up at that error.",
            verdict::explanation(cause, errno, &point)
        );
        let view = View::in_namespace(context, namespace, pid);
        if errno == Errno::ESTALE {
            draft.is_told = true;
            let others =
                fs.device.parse().ok().and_then(|it| sharers::of(sample, it, Some(&pod.uid)));
            let unmount = view.on_mount("umount -f", &fs.point, fs.id).forced(others);
            draft.remedy(
                unmount.so(", which its server no longer knows"),
                "low: the mount is no longer of use; what was not yet written is lost",
            );
            verdict::tell_apart(&mut draft, errno, Some(fs));
            self.found.insert(query.target_id);
            return Some(draft);
        }
        let unmount = view.on_mount("umount", &fs.point, fs.id);
        draft.remedy(
            unmount.so(", whose file system has failed"),
            "what was not yet written is lost already. Check the file system (`fsck`) before it is mounted again",
        );
        verdict::show_disk(&mut draft);
        draft.rule_out(
            ids::CSI_DRIVER_ERROR,
            "the driver's error is that of the file system, which it has only looked at",
        );
        draft.rule_out(ids::NODE_FS_READONLY, format!("the error is {errno:?}, and not EROFS"));
        verdict::tell_apart(&mut draft, errno, Some(fs));
        if !verdict::has_failed_now(fs) {
            draft.doubt("whether the errors that the kernel has counted are new ones");
        }
        self.found.insert(query.target_id);
        Some(draft)
    }

    /// Whether something was found of a target.
    pub(super) fn explains(&self, target_id: u64) -> bool {
        self.found.contains(&target_id)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.told.dropped()
    }
}
