//! The versions of Kubernetes, the kernel and the runtimes to which a cause or a part of it applies, each with the source
//! that states it. A cause without an entry is not known to depend on a version.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    cause::{Cause, CauseId},
    ids,
};

/// Versions to which something about a cause applies.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Versions {
    #[serde(skip)]
    cause: CauseId,
    /// The component that has the version.
    pub component: &'static str,
    /// The first version to which it applies; `null` if it applies to all earlier ones.
    pub since: Option<&'static str>,
    /// The first version to which it no longer applies; `null` if it applies to all later ones.
    pub before: Option<&'static str>,
    /// What applies, as a sentence.
    pub what: &'static str,
    /// Who states that.
    pub source: &'static str,
}

/// An entry of the catalogue as data.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Entry<'a> {
    #[serde(flatten)]
    cause: &'a Cause,
    /// Versions to which it or a part of it applies; empty if it is not known to depend on one.
    versions: Vec<&'static Versions>,
}

impl<'a> From<&'a Cause> for Entry<'a> {
    fn from(cause: &'a Cause) -> Self {
        Self { cause, versions: of(cause.id).collect() }
    }
}

/// The versions to which a cause or a part of it applies.
pub fn of(id: CauseId) -> impl Iterator<Item = &'static Versions> {
    ALL.iter().filter(move |it| it.cause == id)
}

impl Versions {
    /// The range and what applies to it, as a sentence with its source.
    pub fn words(&self) -> String {
        let Self { component, what, source, .. } = self;
        let range = match (self.since, self.before) {
            (Some(since), Some(before)) => format!("from {since} on, before {before}"),
            (Some(since), None) => format!("from {since} on"),
            (None, Some(before)) => format!("before {before}"),
            (None, None) => "of any version".to_owned(),
        };
        format!("{component} {range}: {what} ({source})")
    }
}

const fn since(
    cause: CauseId,
    component: &'static str,
    since: &'static str,
    what: &'static str,
    source: &'static str,
) -> Versions {
    Versions { cause, component, since: Some(since), before: None, what, source }
}

const fn before(
    cause: CauseId,
    component: &'static str,
    before: &'static str,
    what: &'static str,
    source: &'static str,
) -> Versions {
    Versions { cause, component, since: None, before: Some(before), what, source }
}

const OUT_OF_SERVICE: &str =
    "the taint node.kubernetes.io/out-of-service releases the pods of the node";

static ALL: [Versions; 16] = [
    before(
        ids::CSI_DRIVER_LOST_PUBLISH_STATE,
        "kubelet",
        "1.30",
        "kubelet fails to remove the volume's directory (EBUSY)",
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
    ),
    since(
        ids::CSI_DRIVER_LOST_PUBLISH_STATE,
        "kubelet",
        "1.30",
        "kubelet sees that the path is still mounted, and waits without a failing call or an error in its log",
        "kubernetes pkg/volume/csi/csi_mounter.go, TearDownAt",
    ),
    since(
        ids::CSI_DRIVER_NOT_REGISTERED,
        "kubelet",
        "1.36",
        "kubelet repeats a failed registration with pauses of up to about 2 minutes",
        "kubernetes#133335",
    ),
    before(
        ids::GRACE_PERIOD_OR_PRESTOP,
        "kubelet",
        "1.28",
        "a preStop hook that hangs can add the grace period again",
        "kubernetes#115835",
    ),
    since(
        ids::IMAGE_VOLUME_BUSY,
        "containerd",
        "2.1",
        "the runtime mounts images as volumes of pods",
        "containerd#14032",
    ),
    since(
        ids::KERNEL_LOCK_HELD,
        "Linux",
        "6.16",
        "the kernel names the lock that a thread waits for",
        "linux include/linux/hung_task.h, hung_task_set_blocker",
    ),
    before(
        ids::KUBELET_ROOT_SYMLINK,
        "kubelet",
        "1.12",
        "kubelet itself searches for mounts by the path through the link",
        "kubernetes#65879, kubernetes#68741",
    ),
    since(
        ids::NODE_NOT_HEARD,
        "kube-controller-manager",
        "1.26",
        OUT_OF_SERVICE,
        "kubernetes enhancement 2268",
    ),
    since(
        ids::NODE_OFF,
        "kube-controller-manager",
        "1.26",
        OUT_OF_SERVICE,
        "kubernetes enhancement 2268",
    ),
    since(
        ids::POD_FINALIZER,
        "kube-controller-manager",
        "1.22",
        "pods of a Job have the finalizer batch.kubernetes.io/job-tracking (by default since 1.23)",
        "kubernetes enhancement 2307",
    ),
    before(
        ids::POD_NEVER_STARTED,
        "kubelet",
        "1.27.3",
        "kubelet does not report that a pod has ended that it rejected",
        "kubernetes#118497",
    ),
    before(
        ids::POSTSTART_HOOK_PENDING,
        "kubelet",
        "1.27",
        "kubelet handles the deletion only after the hook has returned",
        "kubernetes pkg/kubelet/pod_workers.go, podWorkerLoop",
    ),
    before(
        ids::RESOURCE_CLAIM_NOT_RELEASED,
        "kube-controller-manager",
        "1.36",
        "an entry of a type that the controller does not know keeps the whole claim",
        "kubernetes pkg/controller/resourceclaim/controller.go, syncClaim",
    ),
    since(
        ids::RESOURCE_CLAIM_RESERVED,
        "kube-apiserver",
        "1.32",
        "podstuck reads resource.k8s.io from v1beta1 on",
        "kubernetes enhancement 4381",
    ),
    before(
        ids::SMB_HOST_DOWN,
        "kubelet",
        "1.22",
        "kubelet calls stat(2) before it unmounts, and fails there",
        "kubernetes#101305",
    ),
    since(
        ids::STORED_OBJECT_UNREADABLE,
        "kube-apiserver",
        "1.32",
        "the object can be deleted with ignoreStoreReadErrorWithClusterBreakingPotential (feature gate \
         AllowUnsafeMalformedObjectDeletion)",
        "kubernetes staging/src/k8s.io/apiserver/pkg/registry/generic/registry/store.go",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn a_range_belongs_to_a_cause_of_the_catalogue_and_has_a_bound() {
        assert!(ALL.is_sorted_by_key(|it| it.cause));
        for it in &ALL {
            assert!(catalogue::find(it.cause.as_str()).is_some(), "{}", it.cause);
            assert!(it.since.is_some() || it.before.is_some(), "{}", it.cause);
            assert!(!it.source.is_empty() && !it.what.ends_with('.'), "{}", it.cause);
        }
        let lock = of(ids::KERNEL_LOCK_HELD).map(Versions::words).collect::<Vec<_>>();
        assert_eq!(lock.len(), 1);
        assert!(lock[0].starts_with("Linux from 6.16 on: the kernel names the lock"), "{lock:?}");
    }
}
