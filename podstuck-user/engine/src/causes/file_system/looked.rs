//! A volume's file system that has failed, by the stat request with which a driver, or kubelet, begins: neither comes to
//! the unmount, so no unmount fails. The log names the failed request; the mount table and the device prove the state.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    causes::{
        file_system::{
            causes::{DEVICE_ERROR, STALE_HANDLE},
            verdict,
        },
        shared::{kernel_says::KernelSays, sharers, stat_errors::StatErrors},
    },
    command::{Step, View},
    ids,
    model::{
        errno::Errno,
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

/// Errors of a file system that has failed.
const FAILED: [Errno; 6] =
    [Errno::EIO, Errno::EUCLEAN, Errno::ESHUTDOWN, Errno::ENODEV, Errno::ENXIO, Errno::ESTALE];

/// Failed stat requests on volumes, from the logs.
#[derive(Default)]
pub(crate) struct Looked {
    logged: StatErrors,
    last: Option<Arc<NodeSample>>,
    /// Target IDs with a finding.
    found: BTreeSet<u64>,
}

impl Looked {
    pub(super) fn listen(&mut self, context: &Context<'_>, said: &Said) {
        let failed = |errno: Option<Errno>| errno.is_some_and(|errno| FAILED.contains(&errno));
        if let Some(look) = said.looked.as_ref().filter(|look| failed(look.outcome.errno())) {
            self.logged.listen(context, said, look);
        }
    }

    /// Asks for the file systems of those volumes that are still mounted.
    pub(super) fn sampled(
        &mut self,
        context: &Context<'_>,
        sample: &Arc<NodeSample>,
        steps: &mut Steps,
    ) {
        self.last = Some(sample.clone());
        self.logged.ask(TrackerId::FileSystem, (context, sample), &mut self.found, steps);
    }

    /// The finding, if the file system is proven to have failed.
    pub(super) fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        fs: &FileSystem,
        kernel: &KernelSays,
    ) -> Option<Draft> {
        let failed = self.logged.of(&query.path)?;
        let errno = failed.look.outcome.errno()?;
        let is_served = is_fuse(&fs.fs_type) || verdict::is_served(fs);
        let cause = match errno {
            Errno::ESTALE => fs.fs_type.starts_with("nfs").then_some(&STALE_HANDLE)?,
            _ => {
                // A file system on a local disk returns these for its device, or because it has shut itself down.
                let is_local = fs.device_exists.is_some() || verdict::has_failed(fs);
                (!is_served && is_local).then_some(&DEVICE_ERROR)?
            }
        };
        let sample = self.last.as_deref()?;
        let (pod, volume) = sample.volume(query.target_id)?;
        let (pid, namespace) = pod.seen_by?;
        // Only the mount of the volume itself, or of a subPath, is unmounted for this.
        let is_its = volume.mounts.iter().any(|mount| mount.point == fs.point);
        if !is_its && !fs.point.starts_with(&volume.path) {
            return None;
        }
        let (tracker, target) = (TrackerId::FileSystem, volume.target.clone());
        let (id, path, at) = (query.target_id, query.path.clone(), context.now);
        let mut draft = Draft::about_state(tracker, cause, id, target, path, at);
        failed.logged.tell(&mut draft);
        (draft.blocks_deletion, draft.severity) = (Some(true), Severity::Critical);
        verdict::describe(&mut draft, fs);
        let fails = verdict::quote_kernel(&mut draft, context, fs, kernel);
        let point = safe_path(&fs.point).into_owned();
        draft.explanation = format!(
            "{} The driver, or kubelet, calls stat(2) on the volume before it unmounts it, and \
             gives up at that error.",
            verdict::explanation(cause, errno, &point)
        );
        let view = View::in_namespace(context, namespace, pid);
        if errno == Errno::ESTALE {
            let others =
                fs.device.parse().ok().and_then(|it| sharers::of(sample, it, Some(&pod.uid)));
            release_stale(&mut draft, view.on_mount("umount -f", &fs.point, fs.id).forced(others));
        } else {
            release_failed(&mut draft, view.on_mount("umount", &fs.point, fs.id), errno);
            if !fails && !fs.errors.is_empty() && !verdict::has_failed_now(fs) {
                draft.doubt("whether the errors that the kernel has counted are new");
            }
        }
        verdict::tell_apart(&mut draft, errno, Some(fs), fails);
        self.found.insert(query.target_id);
        Some(draft)
    }

    /// Whether a target has a finding.
    pub(super) fn explains(&self, target_id: u64) -> bool {
        self.found.contains(&target_id)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.logged.dropped()
    }
}

/// The server of an NFS mount no longer knows it.
fn release_stale(draft: &mut Draft, unmount: Step) {
    draft.is_logged = true;
    draft.remedy(
        unmount.so(", which its server no longer knows"),
        "low: the mount is of no use any more; what was not yet written is lost",
    );
}

/// The file system has shut itself down, or its device fails.
fn release_failed(draft: &mut Draft, unmount: Step, errno: Errno) {
    draft.remedy(
        unmount.so(", whose file system has failed"),
        "what was not yet written is lost already. Check the file system (`fsck`) before it is mounted again",
    );
    verdict::show_disk(draft);
    draft.rule_out(
        ids::CSI_DRIVER_ERROR,
        "the driver's error is that of the file system, from its stat(2) call",
    );
    draft.rule_out(ids::NODE_FS_READONLY, format!("the error is {errno:?}, and not EROFS"));
}
