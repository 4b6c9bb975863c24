//! The node service: what kubelet calls for a pod's volumes.

use std::{path::Path, sync::Arc};

use rustix::fs::statvfs;
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status};

use crate::{
    driver::{Answered, Driver},
    klog::Call,
    proto::csi::{
        NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest,
        NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
        NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability,
        NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnpublishVolumeRequest,
        NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
        VolumeCapability, VolumeUsage,
        node_server::Node,
        node_service_capability::{Rpc, Type, rpc},
        volume_capability::AccessType,
        volume_usage::Unit,
    },
};

/// The node service of a driver.
#[derive(Clone, Debug)]
pub struct NodeService {
    driver: Arc<Driver>,
}

impl NodeService {
    /// The service of this driver.
    pub fn new(driver: Arc<Driver>) -> Self {
        Self { driver }
    }

    /// The answer of the driver, on a thread that may wait for the kernel. What it began it ends and
    /// logs, also when kubelet no longer listens.
    async fn answer<T: Send + 'static>(
        &self,
        call: Call,
        work: impl FnOnce(&Driver) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let driver = Arc::clone(&self.driver);
        let answer = spawn_blocking(move || {
            let result = work(&driver);
            call.answered(&result);
            result
        });
        answer
            .await
            .unwrap_or_else(|error| Err(Status::internal(error.to_string())))
            .map(Into::into)
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let asked = request.into_inner();
        let call = Call::new("NodeStageVolume", &asked.volume_id, &asked.staging_target_path);
        self.answer(call, move |driver| {
            no_block_device(asked.volume_capability.as_ref())?;
            driver.stage(&asked.volume_id, &asked.staging_target_path, &asked.volume_context)?;
            Ok(NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let asked = request.into_inner();
        let call = Call::new("NodeUnstageVolume", &asked.volume_id, &asked.staging_target_path);
        self.answer(call, move |driver| {
            driver.unstage(&asked.volume_id, &asked.staging_target_path)?;
            Ok(NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let asked = request.into_inner();
        let call = Call::new("NodePublishVolume", &asked.volume_id, &asked.target_path);
        self.answer(call, move |driver| {
            no_block_device(asked.volume_capability.as_ref())?;
            driver.publish(
                &asked.volume_id,
                &asked.staging_target_path,
                &asked.target_path,
                asked.readonly,
                &asked.volume_context,
            )?;
            Ok(NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let asked = request.into_inner();
        let call = Call::new("NodeUnpublishVolume", &asked.volume_id, &asked.target_path);
        let driver = Arc::clone(&self.driver);
        let answered = spawn_blocking(move || {
            let result = driver.unpublish(&asked.volume_id, &asked.target_path);
            match &result {
                Ok(Answered::Never) => call.never_answered(),
                result => call.answered(result),
            }
            result
        });
        match answered.await.map_err(|error| Status::internal(error.to_string()))?? {
            Answered::Now => Ok(NodeUnpublishVolumeResponse {}.into()),
            Answered::Never => std::future::pending().await,
        }
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let asked = request.into_inner();
        let call = Call::new("NodeGetVolumeStats", &asked.volume_id, &asked.volume_path);
        self.answer(call, move |_| usage(Path::new(&asked.volume_path))).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        self.answer(Call::new("NodeGetCapabilities", "", ""), |driver| {
            let stage = driver.settings().stage.then_some(rpc::Type::StageUnstageVolume);
            let types = [rpc::Type::GetVolumeStats].into_iter().chain(stage);
            let capability = |r#type: rpc::Type| NodeServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: r#type.into() })),
            };
            Ok(NodeGetCapabilitiesResponse { capabilities: types.map(capability).collect() })
        })
        .await
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        self.answer(Call::new("NodeGetInfo", "", ""), |driver| {
            let node_id = driver.settings().node_id.clone();
            // Zero: as many volumes as the node wants.
            Ok(NodeGetInfoResponse { node_id, max_volumes_per_node: 0 })
        })
        .await
    }
}

/// Files are served, block devices are not.
fn no_block_device(capability: Option<&VolumeCapability>) -> Result<(), Status> {
    match capability.and_then(|capability| capability.access_type.as_ref()) {
        Some(AccessType::Mount(_)) => Ok(()),
        Some(AccessType::Block(_)) => Err(Status::invalid_argument("block volumes are not served")),
        None => Err(Status::invalid_argument("volume capability missing in request")),
    }
}

fn usage(path: &Path) -> Result<NodeGetVolumeStatsResponse, Status> {
    let seen = statvfs(path).map_err(|error| match error {
        rustix::io::Errno::NOENT => Status::not_found(format!("{path:?}: {error}")),
        error => Status::internal(format!("statvfs {path:?}: {error}")),
    })?;
    let count = |unit: Unit, size: u64, total: u64, free: u64, available: u64| VolumeUsage {
        unit: unit.into(),
        total: number(total.saturating_mul(size)),
        used: number(total.saturating_sub(free).saturating_mul(size)),
        available: number(available.saturating_mul(size)),
    };
    let bytes = count(Unit::Bytes, seen.f_frsize, seen.f_blocks, seen.f_bfree, seen.f_bavail);
    let inodes = count(Unit::Inodes, 1, seen.f_files, seen.f_ffree, seen.f_favail);
    Ok(NodeGetVolumeStatsResponse { usage: vec![bytes, inodes] })
}

/// The interface has no unsigned ones.
fn number(number: u64) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
