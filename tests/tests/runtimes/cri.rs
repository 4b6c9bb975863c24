//! A client of the Container Runtime Interface, for what kubelet asks of a runtime about one pod with an image volume.
//! The messages have the numbers of `runtime.v1`, and only the fields that are used.

use std::path::Path;

use prost::Message;
use tokio::runtime::{Builder, Runtime};
use tonic::{
    Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

/// Network namespace of the node, for all of a pod.
const OF_NODE: i32 = 2;

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PodMetadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct NamespaceOption {
    #[prost(int32, tag = "1")]
    network: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct SecurityContext {
    #[prost(message, optional, tag = "1")]
    namespace_options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct LinuxPod {
    #[prost(string, tag = "1")]
    cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    security_context: Option<SecurityContext>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PodConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PodMetadata>,
    #[prost(message, optional, tag = "8")]
    linux: Option<LinuxPod>,
}

impl PodConfig {
    pub(crate) fn new(metadata: PodMetadata, cgroup_parent: String) -> Self {
        let namespaces = NamespaceOption { network: OF_NODE };
        let security_context = Some(SecurityContext { namespace_options: Some(namespaces) });
        let linux = LinuxPod { cgroup_parent, security_context };
        Self { metadata: Some(metadata), linux: Some(linux) }
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
struct RunPodSandbox {
    #[prost(message, optional, tag = "1")]
    config: Option<PodConfig>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Image {
    #[prost(string, tag = "1")]
    image: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Mount {
    #[prost(string, tag = "1")]
    container_path: String,
    #[prost(bool, tag = "3")]
    readonly: bool,
    #[prost(message, optional, tag = "9")]
    image: Option<Image>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ContainerMetadata {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    image: Option<Image>,
    #[prost(message, repeated, tag = "7")]
    mounts: Vec<Mount>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<PodConfig>,
}

/// Of a sandbox or a container: the first field of most requests, and of the answers to those that make one.
#[derive(Clone, PartialEq, Eq, Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

/// A runtime that answers on a socket.
pub(crate) struct Cri {
    runtime: Runtime,
    channel: Channel,
}

impl Cri {
    pub(crate) fn at(socket: &Path) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
        let channel = runtime.block_on(async { endpoint.connect().await.unwrap() });
        Self { runtime, channel }
    }

    /// The sandbox's id.
    pub(crate) fn run_sandbox(&self, config: &PodConfig) -> String {
        let asked = RunPodSandbox { config: Some(config.clone()) };
        self.call("/runtime.v1.RuntimeService/RunPodSandbox", asked).unwrap().id
    }

    /// Starts a container with an image that is also a volume of it, at `/data`; the container's id.
    pub(crate) fn run_with_image_volume(
        &self,
        sandbox: &str,
        config: &PodConfig,
        image: &str,
    ) -> String {
        let image = Some(Image { image: image.into() });
        let volume = Mount { container_path: "/data".into(), readonly: true, image: image.clone() };
        let metadata = Some(ContainerMetadata { name: "main".into() });
        let asked = CreateContainer {
            pod_sandbox_id: sandbox.into(),
            config: Some(ContainerConfig { metadata, image, mounts: vec![volume] }),
            sandbox_config: Some(config.clone()),
        };
        let id = self.call("/runtime.v1.RuntimeService/CreateContainer", asked).unwrap().id;
        self.ask("StartContainer", &id).unwrap();
        id
    }

    /// A request that names a sandbox or a container and nothing else: to stop a container, without a grace period.
    pub(crate) fn ask(&self, request: &str, id: &str) -> Result<(), Status> {
        let path = format!("/runtime.v1.RuntimeService/{request}");
        self.call(&path, Id { id: id.into() }).map(drop)
    }

    fn call(&self, path: &str, asked: impl Message + 'static) -> Result<Id, Status> {
        let path: PathAndQuery = path.parse().unwrap();
        let mut client = Grpc::new(self.channel.clone());
        self.runtime.block_on(async {
            client.ready().await.unwrap();
            let answer = client.unary(Request::new(asked), path, ProstCodec::default()).await;
            answer.map(tonic::Response::into_inner)
        })
    }
}
