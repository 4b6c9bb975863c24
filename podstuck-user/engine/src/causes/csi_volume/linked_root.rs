//! A volume that stays mounted because kubelet's root is a symbolic link.

use crate::{
    cause::Cause,
    causes::csi_volume::causes::ROOT_SYMLINK,
    ids,
    model::{
        evidence::Source,
        identity::{SUBPATH, Target},
        linked_root::LinkedRoot,
        path::safe_path,
    },
    verdict::Draft,
};

/// The cause of a mount that is left on a volume: [`ROOT_SYMLINK`] in place of a look-alike below a linked root.
pub(crate) fn in_place_of(known: &'static Cause, link: Option<&LinkedRoot>) -> &'static Cause {
    let is_alike = ROOT_SYMLINK.look_alike(known.id).is_some() || known.is_admission();
    if link.is_some() && is_alike { &ROOT_SYMLINK } else { known }
}

/// Adds the link as a fact.
pub(crate) fn tell(draft: &mut Draft, link: &LinkedRoot) {
    let LinkedRoot { named, link, leads_to } = link;
    let (named, link, leads_to) = (safe_path(named), safe_path(link), safe_path(leads_to));
    let fact = if named == link {
        format!("kubelet's root {named} is a symbolic link to {leads_to}")
    } else {
        format!("{link} is a symbolic link, so kubelet's root {named} resolves to {leads_to}")
    };
    draft.fact(fact, Source::Look("readlinkat"));
}

/// Rules out the look-alikes, by the number of mounts on the path.
pub(crate) fn tell_apart(
    draft: &mut Draft,
    target: &Target,
    mounts: usize,
    link: Option<&LinkedRoot>,
) {
    let Some(link) = link else {
        // The remedy is the same, whichever component left it mounted.
        return draft.suffices_beside(ids::KUBELET_ROOT_SYMLINK);
    };
    if *draft.cause != ROOT_SYMLINK {
        return;
    }
    tell(draft, link);
    draft.explanation = format!(
        "A symbolic link leads to kubelet's root, and the kernel lists this mount by the path \
         that the link resolves to, below {}. Most likely the program that must unmount it \
         searched for it by the path through the link and did not find it, or mounted it twice \
         for that reason. kubelet up to 1.11 does so, as do some CSI drivers.",
        safe_path(&link.leads_to)
    );
    // The remedy is the same for both causes.
    if mounts > 1 {
        draft.suffices_beside(ids::STACKED_MOUNTS);
    } else {
        draft.rule_out(ids::STACKED_MOUNTS, "one mount is on the path");
    }
    let is_subpath = target.volume.as_ref().is_some_and(|volume| volume.plugin == SUBPATH);
    if is_subpath {
        draft.suffices_beside(ids::SUBPATH_BUSY);
    } else {
        draft.rule_out(ids::SUBPATH_BUSY, "the mount is not a subPath");
    }
    draft.doubt(
        "whether the program that must unmount it searches for mounts by the path through the link",
    );
    draft.advice(
        "drain the node, and configure kubelet and the drivers with the path without the link \
         (`--root-dir`), or replace the link by a bind mount",
        "requires a restart of kubelet; while the link exists, the problem can recur",
    );
}
