//! The targets in a sample of the node.

use std::sync::Arc;

use podstuck_common::component::path_hash;
use podstuck_engine::bounded::Bounded;

use super::Attributor;
use crate::model::node::NodeSample;
use podstuck_node::identity::{containers::Container, kubelet_trees::KubeletTrees};

impl Attributor {
    /// A sample of the node, with the target of each volume and group.
    pub(crate) fn sample(
        &mut self,
        sample: Arc<NodeSample>,
        trees: Arc<KubeletTrees>,
        containers: &[Arc<Container>],
    ) -> Arc<NodeSample> {
        self.targets.containers_are(containers);
        self.trees = trees;
        self.given = Bounded::default();
        let mut sample = Arc::unwrap_or_clone(sample);
        for volume in sample.pods.iter_mut().flat_map(|pod| &mut pod.volumes) {
            if let Some((target_id, target)) = self.targets.of(&volume.path) {
                (volume.target_id, volume.target) = (target_id, target);
            }
        }
        for pod in &mut sample.pods {
            for device in &mut pod.devices {
                let known = device.link.as_deref().and_then(|link| self.targets.of(link));
                let of_pod = || {
                    let (_, target) = self.targets.of_pod(&pod.uid);
                    (path_hash(device.path().as_os_str().as_encoded_bytes()), target)
                };
                (device.target_id, device.target) = known.unwrap_or_else(of_pod);
            }
        }
        for group in &mut sample.cgroups {
            let pod = sample.pods.iter().find(|pod| pod.uid == group.uid);
            let known = pod.and_then(|pod| self.targets.of(&pod.directory));
            (group.target_id, group.target) =
                known.unwrap_or_else(|| self.targets.of_pod(&group.uid));
        }
        let parts = sample.containers.iter_mut().flat_map(|container| &mut container.parts);
        for part in parts {
            if let Some((target_id, target)) = self.targets.of(&part.path) {
                (part.target_id, part.target) = (target_id, target);
            }
        }
        for rootfs in &mut sample.rootfs {
            let Some((target_id, target)) = self.targets.of(&rootfs.mount.point) else { continue };
            rootfs.target_id = target_id;
            let of_pod = !rootfs.pod.is_empty();
            rootfs.target =
                if of_pod { self.targets.belongs_to(target_id, &rootfs.pod) } else { target };
        }
        Arc::new(sample)
    }
}
