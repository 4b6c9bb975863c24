//! The container image, which contains only the program and the agent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};

use super::archive::Archive;
use super::oci::{CONFIG, LAYER, Layout, MANIFEST, hex};
use super::{Built, Release, libraries, read, write};

/// Writes it for all architectures; returns the file.
pub(super) fn make(release: &Release<'_>, built: &[Built]) -> Result<PathBuf> {
    let mut layout = Layout::default();
    let mut manifests = Vec::new();
    for built in built {
        manifests.push(manifest(release, built, &mut layout)?);
    }
    let name = format!("{}:{}", release.image, release.version);
    let file = release.out.join(format!("podstuck-{}-image.tar", release.version));
    write(&file, &layout.pack(&name, &manifests, release.time)?)?;
    Ok(file)
}

/// The manifest for one architecture; returns its descriptor.
fn manifest(release: &Release<'_>, built: &Built, layout: &mut Layout) -> Result<Value> {
    let content = layer(release, built)?;
    let unpacked = hex(&content);
    let architecture = built.architecture.of_debian();
    let layer = layout.add(LAYER, release.gzip(&content)?);
    // Without build times, so that the same source yields the same image.
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": "0:0",
            "Env": ["PATH=/"],
            "Entrypoint": ["/podstuck"],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "podstuck",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{unpacked}")] },
        "history": [{ "created_by": "cargo xtask dist" }],
    });
    let config = layout.add(CONFIG, config.to_string().into_bytes());
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
    });
    let mut descriptor = layout.add(MANIFEST, manifest.to_string().into_bytes());
    descriptor["platform"] = json!({ "architecture": architecture, "os": "linux" });
    Ok(descriptor)
}

fn layer(release: &Release<'_>, built: &Built) -> Result<Vec<u8>> {
    let mut layer = Archive::new(release.time);
    layer.file("podstuck", 0o755, &read(&built.program)?)?;
    // Mount points for the node's root and for the output of a run.
    for folder in ["host", "proc", "sys", "dev", "etc"] {
        layer.directory(folder, 0o755)?;
    }
    layer.directory("tmp", 0o1777)?;
    layer.file("podstuck-agent", 0o755, &read(&built.agent)?)?;
    let mut libraries = BTreeMap::new();
    for program in [&built.program, &built.agent] {
        libraries.extend(libraries::of(program)?);
    }
    for (path, from) in libraries {
        layer.file(&path, 0o755, &read(&from)?)?;
    }
    layer.finish()
}
