//! Types of API objects, as requests name them, and object names.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

type Text = Cow<'static, str>;

/// Stands for the core group, whose name is empty, where a name is required.
pub const CORE: &str = "core";

/// A type of API objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Kind {
    /// Its API group; empty for the core group.
    pub group: Text,
    /// The version that is requested.
    pub version: Text,
    /// The name in requests, such as `pods`.
    pub plural: Text,
    /// The name in objects, such as `Pod`.
    pub name: Text,
    /// Whether it is namespaced.
    pub namespaced: bool,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $constant:ident = $group:literal $version:literal $plural:literal $name:literal $namespaced:literal,)*) => {
        impl Kind {
            $(
                $(#[$doc])*
                pub const $constant: Self = Self {
                    group: Cow::Borrowed($group),
                    version: Cow::Borrowed($version),
                    plural: Cow::Borrowed($plural),
                    name: Cow::Borrowed($name),
                    namespaced: $namespaced,
                };
            )*

            /// The types of which podstuck reads more than metadata, and the types of their owners.
            pub const ALL: &[Self] = &[$(Self::$constant),*];
        }
    };
}

kinds! {
    /// `pods`
    POD = "" "v1" "pods" "Pod" true,
    /// `persistentvolumeclaims`
    CLAIM = "" "v1" "persistentvolumeclaims" "PersistentVolumeClaim" true,
    /// `persistentvolumes`
    VOLUME = "" "v1" "persistentvolumes" "PersistentVolume" false,
    /// `volumeattachments`
    ATTACHMENT = "storage.k8s.io" "v1" "volumeattachments" "VolumeAttachment" false,
    /// `nodes`
    NODE = "" "v1" "nodes" "Node" false,
    /// `namespaces`
    NAMESPACE = "" "v1" "namespaces" "Namespace" false,
    /// `leases`
    LEASE = "coordination.k8s.io" "v1" "leases" "Lease" true,
    /// `deployments`
    DEPLOYMENT = "apps" "v1" "deployments" "Deployment" true,
    /// `replicasets`
    REPLICA_SET = "apps" "v1" "replicasets" "ReplicaSet" true,
    /// `statefulsets`
    STATEFUL_SET = "apps" "v1" "statefulsets" "StatefulSet" true,
    /// `daemonsets`
    DAEMON_SET = "apps" "v1" "daemonsets" "DaemonSet" true,
    /// `jobs`
    JOB = "batch" "v1" "jobs" "Job" true,
    /// `services`
    SERVICE = "" "v1" "services" "Service" true,
    /// `endpointslices`
    ENDPOINT_SLICE = "discovery.k8s.io" "v1" "endpointslices" "EndpointSlice" true,
    /// `endpointslices` of Kubernetes before 1.21
    ENDPOINT_SLICE_BETA = "discovery.k8s.io" "v1beta1" "endpointslices" "EndpointSlice" true,
    /// `apiservices`
    API_SERVICE = "apiregistration.k8s.io" "v1" "apiservices" "APIService" false,
    /// `baremetalhosts`
    BARE_METAL_HOST = "metal3.io" "v1alpha1" "baremetalhosts" "BareMetalHost" true,
    /// `resourceclaims`, since Kubernetes 1.34
    RESOURCE_CLAIM = "resource.k8s.io" "v1" "resourceclaims" "ResourceClaim" true,
    /// `resourceclaims` of Kubernetes 1.33
    RESOURCE_CLAIM_BETA_2 = "resource.k8s.io" "v1beta2" "resourceclaims" "ResourceClaim" true,
    /// `resourceclaims` of Kubernetes 1.32
    RESOURCE_CLAIM_BETA_1 = "resource.k8s.io" "v1beta1" "resourceclaims" "ResourceClaim" true,
    /// `resourceslices`, since Kubernetes 1.34
    RESOURCE_SLICE = "resource.k8s.io" "v1" "resourceslices" "ResourceSlice" false,
    /// `resourceslices` of Kubernetes 1.33
    RESOURCE_SLICE_BETA_2 = "resource.k8s.io" "v1beta2" "resourceslices" "ResourceSlice" false,
    /// `resourceslices` of Kubernetes 1.32
    RESOURCE_SLICE_BETA_1 = "resource.k8s.io" "v1beta1" "resourceslices" "ResourceSlice" false,
    /// `mutatingwebhookconfigurations`
    MUTATING = "admissionregistration.k8s.io" "v1" "mutatingwebhookconfigurations" "MutatingWebhookConfiguration" false,
    /// `validatingwebhookconfigurations`
    VALIDATING = "admissionregistration.k8s.io" "v1" "validatingwebhookconfigurations" "ValidatingWebhookConfiguration" false,
}

impl Kind {
    /// A type that the API server names.
    pub fn named(group: &str, version: &str, plural: &str, name: &str, namespaced: bool) -> Self {
        let own = |text: &str| Cow::Owned(text.to_owned());
        let (group, version, plural, name) = (own(group), own(version), own(plural), own(name));
        Self { group, version, plural, name, namespaced }
    }

    /// Whether podstuck reads more than the metadata of its objects.
    pub fn is_known(&self) -> bool {
        Self::ALL.contains(self)
    }

    /// The type argument for kubectl: with the group where kubectl prefers another group's type.
    pub fn for_kubectl(&self) -> String {
        match &*self.group {
            "" | "apps" | "batch" | "storage.k8s.io" => self.name.to_ascii_lowercase(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// The type argument for `kubectl podstuck`: with the group for types that it does not know.
    pub fn for_podstuck(&self) -> String {
        match &*self.group {
            _ if self.is_known() => self.for_kubectl(),
            "" => format!("{}.{CORE}", self.plural),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// The request path of its objects.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let version = &self.version;
        let of_version = match &*self.group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{of_version}/namespaces/{namespace}/{}", self.plural),
            None => format!("{of_version}/{}", self.plural),
        }
    }

    /// The type argument for `kubectl auth can-i`.
    pub fn for_rights(&self) -> String {
        match &*self.group {
            "" => self.plural.to_string(),
            group => format!("{}.{group}", self.plural),
        }
    }
}

/// Identifies an object, except for its UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Key {
    /// Its type.
    pub kind: Kind,
    /// Its namespace, if its type is namespaced.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Key {
    /// The key of a namespaced object.
    pub fn of(kind: Kind, namespace: &str, name: &str) -> Self {
        let namespace = kind.namespaced.then(|| namespace.to_owned());
        Self { kind, namespace, name: name.to_owned() }
    }

    /// The key of a cluster-scoped object.
    pub fn global(kind: Kind, name: &str) -> Self {
        Self { kind, namespace: None, name: name.to_owned() }
    }

    /// Its request path.
    pub fn path(&self) -> String {
        format!("{}/{}", self.kind.path(self.namespace.as_deref()), self.name)
    }
}

/// Such as `Pod shop/cart-0`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind.name, self.name),
            None => write!(f, "{} {}", self.kind.name, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_path_of_its_group() {
        let pod = Key::of(Kind::POD, "shop", "cart-0");
        assert_eq!(pod.path(), "/api/v1/namespaces/shop/pods/cart-0");
        assert_eq!(pod.to_string(), "Pod shop/cart-0");
        let attachment = Key::of(Kind::ATTACHMENT, "shop", "csi-1");
        assert_eq!(attachment.path(), "/apis/storage.k8s.io/v1/volumeattachments/csi-1");
        assert_eq!(attachment.to_string(), "VolumeAttachment csi-1");
        assert_eq!(Kind::LEASE.path(None), "/apis/coordination.k8s.io/v1/leases");
    }

    #[test]
    fn kubectl_and_rights_name_a_type_by_its_group() {
        assert_eq!(Kind::CLAIM.for_kubectl(), "persistentvolumeclaim");
        assert_eq!(Kind::LEASE.for_kubectl(), "leases.coordination.k8s.io");
        assert_eq!(Kind::ATTACHMENT.for_rights(), "volumeattachments.storage.k8s.io");
        let widget = Kind::named("example.com", "v1", "widgets", "Widget", true);
        assert_eq!(
            (widget.is_known(), widget.for_kubectl().as_str()),
            (false, "widgets.example.com")
        );
        assert_eq!(widget.for_podstuck(), "widgets.example.com");
        let map = Kind::named("", "v1", "configmaps", "ConfigMap", true);
        assert_eq!(
            (map.for_kubectl(), map.for_podstuck()),
            ("configmap".into(), "configmaps.core".into())
        );
    }
}
