//! An image layout of the Open Container Initiative (image-spec 1.1) in one archive: blobs named by their checksums,
//! and an index. It is written without a daemon.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::archive::Archive;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Blobs, by checksum.
#[derive(Default)]
pub(super) struct Layout {
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Layout {
    /// Adds a blob; returns its descriptor.
    pub(super) fn add(&mut self, kind: &str, content: Vec<u8>) -> Value {
        let (sum, size) = (hex(&content), content.len());
        let descriptor =
            json!({ "mediaType": kind, "digest": format!("sha256:{sum}"), "size": size });
        self.blobs.insert(sum, content);
        descriptor
    }

    /// An archive with one named image, for the architectures of these manifests.
    pub(super) fn pack(mut self, name: &str, manifests: &[Value], time: u64) -> Result<Vec<u8>> {
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        let mut image = self.add(INDEX, index.to_string().into_bytes());
        // containerd imports it by the first annotation; skopeo and podman read the second.
        let tag = name.rsplit_once(':').map_or(name, |(_, tag)| tag);
        image["annotations"] = json!({
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": tag,
        });
        let top = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [image] });
        let mut archive = Archive::new(time);
        let version = json!({ "imageLayoutVersion": "1.0.0" }).to_string();
        archive.file("oci-layout", 0o644, version.as_bytes())?;
        archive.file("index.json", 0o644, top.to_string().as_bytes())?;
        archive.directory("blobs", 0o755)?;
        archive.directory("blobs/sha256", 0o755)?;
        for (sum, content) in &self.blobs {
            archive.file(&format!("blobs/sha256/{sum}"), 0o644, content)?;
        }
        archive.finish()
    }
}

/// SHA-256, in hexadecimal digits.
pub(super) fn hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}
