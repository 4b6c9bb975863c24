//! The registration service, which makes a driver known to kubelet, as node-driver-registrar does.

use tokio::sync::mpsc::UnboundedSender;
use tonic::{Request, Response, Status};

use crate::{
    klog::{self, Call},
    proto::registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::Registration,
    },
};

/// What kubelet calls a CSI driver (`pkg/volume/csi/csi_plugin.go`; `k8s.io/kubelet`
/// `pluginregistration/v1/constants.go`).
const TYPE: &str = "CSIPlugin";

/// The version of the interface that is spoken. kubelet wants a driver's highest to be 0.3 or 1.x.
const VERSION: &str = "1.0.0";

/// The registration of one driver.
#[derive(Clone, Debug)]
pub struct RegistrationService {
    name: String,
    endpoint: String,
    refused: UnboundedSender<String>,
}

impl RegistrationService {
    /// Registers the driver `name`, whose socket kubelet finds at `endpoint`. What kubelet says when
    /// it did not register it goes to `refused`.
    pub fn new(name: String, endpoint: String, refused: UnboundedSender<String>) -> Self {
        Self { name, endpoint, refused }
    }
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        let info = PluginInfo {
            r#type: TYPE.to_owned(),
            name: self.name.clone(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec![VERSION.to_owned()],
        };
        let result = Ok(info);
        Call::new("GetInfo", "", &self.endpoint).answered(&result);
        result.map(Response::new)
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            klog::info(format!("kubelet registered {:?}", self.name));
        } else {
            klog::error(format!("kubelet did not register {:?}: {:?}", self.name, status.error));
            // The receiver is gone when this process is about to end.
            let _ = self.refused.send(status.error);
        }
        let result = Ok(RegistrationStatusResponse {});
        Call::new("NotifyRegistrationStatus", "", &self.endpoint).answered(&result);
        result.map(Response::new)
    }
}
