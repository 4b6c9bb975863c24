//! The one image of all containers, as `docker save` writes it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use lddtree::DependencyAnalyzer;
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::{IMAGE, place::Place};

/// Debian's package busybox-static.
const BUSYBOX: &str = "/bin/busybox";
/// What containers call it by.
const APPLETS: [&str; 16] = [
    "sh", "sleep", "mkdir", "touch", "rm", "ls", "cat", "dd", "ln", "mount", "umount", "chmod",
    "kill", "seq", "test", "true",
];

/// Writes it; the file.
pub(crate) fn make(place: &Place, programs: &[&Path]) -> Result<PathBuf> {
    let layer = layer(programs).context("making an image")?;
    let digest: String = Sha256::digest(&layer).iter().map(|b| format!("{b:02x}")).collect();
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": { "Cmd": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
    });
    let manifest =
        json!([{ "Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"] }]);
    let path = place.at("image.tar");
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let mut image = Builder::new(file);
    for (name, content) in [
        ("layer.tar", &layer),
        ("config.json", &config.to_string().into_bytes()),
        ("manifest.json", &manifest.to_string().into_bytes()),
    ] {
        put(&mut image, name, 0o644, content)?;
    }
    image.finish().with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn layer(programs: &[&Path]) -> Result<Vec<u8>> {
    let mut layer = Builder::new(Vec::new());
    for folder in ["tmp", "dev", "proc", "sys", "etc", "data"] {
        let mut header = header(EntryType::Directory, 0o755, 0);
        layer.append_data(&mut header, format!("{folder}/"), std::io::empty())?;
    }
    put(&mut layer, "bin/busybox", 0o755, &read(Path::new(BUSYBOX))?)?;
    for name in APPLETS {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        layer.append_link(&mut header, format!("bin/{name}"), "busybox")?;
    }
    let mut files = BTreeMap::new();
    for program in programs {
        files.extend(with_libraries(program)?);
    }
    for (path, from) in files {
        put(&mut layer, &path, 0o755, &read(&from)?)?;
    }
    Ok(layer.into_inner()?)
}

/// A program and its libraries, by their paths in the image.
fn with_libraries(program: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let name = program.file_name().context("a program has a name")?.to_string_lossy();
    let tree = DependencyAnalyzer::new("/".into())
        .analyze(program)
        .with_context(|| format!("looking for the libraries of {}", program.display()))?;
    let mut files = BTreeMap::from([(format!("bin/{name}"), program.to_owned())]);
    if let Some(loader) = &tree.interpreter {
        files.insert(loader.trim_start_matches('/').to_owned(), loader.into());
    }
    for library in tree.libraries.values() {
        if let Some(real) = &library.realpath {
            // Where every loader looks, whatever the host's folders are called.
            files.insert(format!("lib/{}", library.name), real.clone());
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header
}

fn put<W: std::io::Write>(
    to: &mut Builder<W>,
    name: &str,
    mode: u32,
    content: &[u8],
) -> Result<()> {
    let mut header = header(EntryType::Regular, mode, content.len());
    to.append_data(&mut header, name, content).with_context(|| format!("packing {name}"))
}
