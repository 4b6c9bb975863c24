//! Causes of slow deletions of very many entries.

use crate::cause::Origin;
use crate::{
    cause::{Cause, Kind, TriedWith, or_seen, seen},
    causes::mass_deletion::verdict::{ALIKE, CONFIRMED, TITLE, WAIT},
    ids,
    model::diagnosis::Stage,
};

/// A deletion in an emptyDir.
pub(crate) static EMPTYDIR_FILES: Cause = Cause {
    id: ids::EMPTYDIR_MASS_FILES,
    title: TITLE,
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The pod's emptyDir has a large number of entries, and kubelet deletes them one by \
        one, which takes long. The pod waits meanwhile; it is not stuck.",
    confirmed_by: CONFIRMED,
    log: None,
    look_alikes: ALIKE,
    ways_out: WAIT,
    field: &["kubernetes#97242", "kubernetes#36983", "trident#664"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet],
    source: &["kubernetes pkg/volume/emptydir/empty_dir.go, teardownDefault"],
};

/// A deletion in a Docker volume.
pub(crate) static DOCKER_VOLUME_STORM: Cause = Cause {
    id: ids::DOCKER_VOLUME_UNLINK_STORM,
    title: TITLE,
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "An image declares a VOLUME, its application left millions of entries in it, and \
        dockerd deletes them while it holds its volume store's lock: creating, listing and removing \
        volumes waits, for all containers of the node.",
    confirmed_by: &[
        seen(
            "thousands of entries were deleted below one directory, and more are deleted every second",
            &[Origin::Calls],
        ),
        or_seen(
            "which processes wait meanwhile: those connected to dockerd, and how far their \
            requests have come",
            &[Origin::Look],
        ),
    ],
    log: None,
    look_alikes: ALIKE,
    ways_out: WAIT,
    field: &["NetEase's article on a docker volume with millions of entries", "moby#41424"],
    tried: &[TriedWith::RealRuntime],
    source: &["moby volume/local/local.go, (*Root).Remove"],
};

/// A deletion anywhere else.
pub(crate) static MASS_DELETION: Cause = Cause {
    id: ids::MASS_DELETION,
    title: TITLE,
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A directory with very many entries is being deleted. It blocks no pod by itself, \
        but slows down every process that uses the same disk.",
    confirmed_by: CONFIRMED,
    log: None,
    look_alikes: ALIKE,
    ways_out: WAIT,
    field: &[],
    tried: &[TriedWith::Test],
    source: &["go src/os/removeall_at.go, removeAllFrom"],
};
