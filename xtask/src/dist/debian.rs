//! The Debian package.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use podstuck_process as process;

use super::completions::Completion;
use super::libraries;
use super::pages::Page;
use super::{Built, Release, read, write};

const CONTROL: &str = include_str!("files/control");
const COPYRIGHT: &str = include_str!("files/copyright");

/// Writes it; returns the file.
pub(super) fn make(
    release: &Release<'_>,
    built: &Built,
    pages: &[Page],
    completions: &[Completion],
) -> Result<PathBuf> {
    if process::find("dpkg-deb").is_none() {
        bail!("no `dpkg-deb`, which packs Debian packages; on Debian it is in the package dpkg");
    }
    let folder = tempfile::tempdir().context("creating a folder for the package")?;
    let root = folder.path();
    let name = format!("podstuck_{}_{}.deb", release.version, built.architecture.of_debian());
    put(root, "usr/bin/podstuck", 0o755, &read(&built.program)?)?;
    for page in pages {
        let path = format!("usr/share/man/man8/{}.gz", page.name);
        put(root, &path, 0o644, &release.gzip(page.text.as_bytes())?)?;
    }
    for completion in completions {
        let path = format!("usr/share/{}/{}", completion.folder, completion.name);
        put(root, &path, 0o644, completion.text.as_bytes())?;
    }
    let documents = "usr/share/doc/podstuck";
    let changes = release.gzip(&read(&release.workspace.root.join("CHANGELOG.md"))?)?;
    put(root, &format!("{documents}/changelog.gz"), 0o644, &changes)?;
    put(root, &format!("{documents}/copyright"), 0o644, COPYRIGHT.as_bytes())?;
    for list in &built.lists {
        let list_name = list.file_name().context("a list has a name")?.to_string_lossy();
        put(root, &format!("{documents}/{list_name}.gz"), 0o644, &release.gzip(&read(list)?)?)?;
    }
    // In units of 1,024 bytes, which the package manager shows before the installation.
    let size = size_of(root)?.div_ceil(1024);
    let depends = if libraries::of(&built.program)?.is_empty() { "" } else { "Depends: libc6\n" };
    let control = CONTROL
        .replace("@VERSION@", release.version)
        .replace("@ARCHITECTURE@", built.architecture.of_debian())
        .replace("@SIZE@", &size.to_string())
        .replace("@DEPENDS@\n", depends);
    put(root, "DEBIAN/control", 0o644, control.as_bytes())?;
    let file = release.out.join(name);
    let mut pack = Command::new("dpkg-deb");
    let how = if release.quick { ["-Zgzip", "-z1"] } else { ["-Zxz", "-z9"] };
    pack.arg("--root-owner-group").args(how).arg("--build").arg(root).arg(&file);
    process::output(pack.env("SOURCE_DATE_EPOCH", release.time.to_string()))?;
    Ok(file)
}

fn put(root: &Path, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let path = root.join(path);
    let parent = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    write(&path, content)?;
    // Whatever the umask is: dpkg-deb refuses some modes, and others would not be readable once installed.
    for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(root)) {
        set_mode(folder, 0o755)?;
    }
    set_mode(&path, mode)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("setting the mode of {}", path.display()))
}

fn size_of(folder: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let kind = entry.metadata()?;
        size += if kind.is_dir() { size_of(&entry.path())? } else { kind.len() };
    }
    Ok(size)
}
