//! A volume that stays mounted below a kubelet's root that is a symbolic link.

use crate::{
    cause::{Cause, Kind, TriedWith, like, log, way},
    ids,
    model::{
        diagnosis::Stage,
        evidence::Source,
        identity::{SUBPATH, Target},
        linked_root::LinkedRoot,
        path::safe_path,
    },
    verdict::Draft,
};

/// Who looks for a mount by the name that has the link in it, does not find it.
pub(crate) static ROOT_SYMLINK: Cause = Cause {
    id: ids::KUBELET_ROOT_SYMLINK,
    title: "kubelet's root directory is a symbolic link, and a mount below it is not found by its name",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "kubelet's root directory is reached by a symbolic link. The kernel lists mounts by the path that the link \
        leads to, and whoever compares that with the path by the link takes a volume for not mounted: it is mounted \
        once more, or its unmount is skipped, and its directory cannot be removed (EBUSY). kubelet does so \
        with subPaths and other volumes up to 1.11, and CSI drivers of any version may.",
    confirmed_by: &[
        "a directory on the way to kubelet's root is a symbolic link",
        "a volume of the pod is mounted more often than once, or nobody unmounts it, and its removal fails with EBUSY",
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... device or resource busy"),
    look_alikes: &[
        like(ids::STACKED_MOUNTS, "kubelet's root is reached by a symbolic link"),
        like(ids::SUBPATH_BUSY, "kubelet's root is reached by a symbolic link"),
    ],
    ways_out: &[
        way("`umount` the path", "low once all containers of the pod have ended"),
        way(
            "give kubelet and the drivers the path without the link (`--root-dir`), or have a bind mount in place of \
             the link",
            "takes a drained node and a restart of kubelet",
        ),
    ],
    field: &["kubernetes#65879", "kubernetes#68740", "k3s#840"],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes issues 65879, 68740, 24717, pull request 68741",
        "linux fs/proc_namespace.c, show_mountinfo: seq_path_root",
    ],
};

/// Which it is in place of another cause, where a mount is left on a volume below such a root.
pub(crate) fn in_place_of(known: &'static Cause, link: Option<&LinkedRoot>) -> &'static Cause {
    let is_alike = ROOT_SYMLINK.look_alike(known.id).is_some() || known.is_admission();
    if link.is_some() && is_alike { &ROOT_SYMLINK } else { known }
}

/// The link, and what is not known of it.
pub(crate) fn tell(draft: &mut Draft, link: &LinkedRoot) {
    let LinkedRoot { named, link, leads_to } = link;
    let (named, link, leads_to) = (safe_path(named), safe_path(link), safe_path(leads_to));
    let fact = if named == link {
        format!("kubelet's root {named} is a symbolic link and leads to {leads_to}")
    } else {
        format!("{link} is a symbolic link, so that kubelet's root {named} is {leads_to}")
    };
    draft.fact(fact, Source::Look("readlinkat"));
}

/// What tells it apart, given the mounts on the path.
pub(crate) fn tell_apart(
    draft: &mut Draft,
    target: &Target,
    mounts: usize,
    link: Option<&LinkedRoot>,
) {
    let Some(link) = link else {
        // It is unmounted in the same way, whoever has forgotten it.
        return draft.suffices_beside(ids::KUBELET_ROOT_SYMLINK);
    };
    if *draft.cause != ROOT_SYMLINK {
        return;
    }
    tell(draft, link);
    draft.explanation = format!(
        "kubelet's root is reached by a symbolic link, and the kernel lists this mount by the path that the link leads \
         to, below {}. Most likely whoever was to unmount it has looked for it by the path with the link, and has not \
         found it, or mounted it twice for that reason. kubelet up to 1.11 does so, and some CSI drivers.",
        safe_path(&link.leads_to)
    );
    // The way out is the same, whichever it is.
    if mounts > 1 {
        draft.suffices_beside(ids::STACKED_MOUNTS);
    } else {
        draft.rule_out(ids::STACKED_MOUNTS, "one mount is on the path");
    }
    let is_subpath = target.volume.as_ref().is_some_and(|volume| volume.plugin == SUBPATH);
    if is_subpath {
        draft.suffices_beside(ids::SUBPATH_BUSY);
    } else {
        draft.rule_out(ids::SUBPATH_BUSY, "it is no subPath");
    }
    draft.doubt("whether who was to unmount it looks for mounts by the path with the link");
    draft.advice(
        "drain the node, and give kubelet and the drivers the path without the link (`--root-dir`), or have a bind \
         mount in place of the link",
        "takes a restart of kubelet; as long as the link is there, it comes again",
    );
}
