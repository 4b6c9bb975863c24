//! A CSI driver's FUSE mount whose server is gone, which the driver has not unmounted.

use crate::{
    causes::{
        csi_volume::{driver, verdict::Suspect, words::umount},
        dead_fuse,
    },
    model::evidence::Source,
    tracker::Context,
    verdict::Draft,
};

/// The server of a CSI driver's volume is gone, and the driver has not unmounted it.
pub(super) fn below_driver(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    driver::listens(draft, suspect);
    draft.fact("a look at it fails with ENOTCONN", Source::Look("statx"));
    draft.explanation = "The process that served this volume (FUSE) has ended, and its mount is still there. \
        Whoever looks at it gets ENOTCONN; many drivers look before they unmount, and fail at that. Nothing can \
        be lost any more by unmounting."
        .into();
    umount(
        context,
        draft,
        suspect,
        "low: nothing behind the mount can be reached. The driver is not told, so its node-wide mount may have \
         to be unmounted as well",
    );
    dead_fuse::verdict::tell_apart(draft);
    let names_it = |text: &str| text.contains("transport endpoint is not connected");
    if !suspect.said.is_some_and(|(_, said)| names_it(&said.text)) {
        draft.doubt("whether the driver fails because of it: its answer is not known");
    }
}
