//! The guest's whole file system: an archive that the kernel unpacks into memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Cursor, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cpio::NewcBuilder;

use crate::vm::programs::Programs;
use crate::vm::userland::Userland;

/// Programs that the tests and podstuck's remedies call and of which busybox's versions are insufficient.
const TOOLS: [&str; 11] = [
    "bash",
    "chattr",
    "dmsetup",
    "fuser",
    "lsof",
    "mkfs.ext4",
    "mountpoint",
    "nsenter",
    "rm",
    "setpriv",
    "umount",
];
/// Programs at the paths where tests search for a runtime, and where its containers, which see the node's `/usr`,
/// have replacements for busybox's applets: those have another process name, and its `rm` calls `unlink`.
const OTHERS: [(&str, &str); 4] = [
    ("runc", "usr/sbin/runc"),
    ("bash", "usr/bin/sh"),
    ("rm", "usr/bin/rm"),
    ("sleep", "usr/bin/sleep"),
];
const INIT: &str = include_str!("init.sh");

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
/// Folders that are links into `/usr`, as in Debian.
const MERGED: [&str; 2] = ["lib", "lib64"];

/// Contents by path in the guest, without the leading slash.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// The files that are the same for every kernel.
pub(super) fn common_files(programs: &Programs, userland: &Userland) -> Result<Files> {
    let mut files = Files::from([("init".to_owned(), INIT.as_bytes().to_vec())]);
    let mut add = |place: String, file: &Path| -> Result<()> {
        files.insert(place, read(file)?);
        Ok(())
    };
    for program in &programs.tools {
        add(format!("podstuck/{}", program.name), &program.file)?;
    }
    // In a subfolder, as in cargo's layout: tests find podstuck-call relative to it.
    for program in &programs.tests {
        add(format!("podstuck/tests/{}", program.name), &program.file)?;
    }
    add("bin/busybox".to_owned(), &userland.find("busybox")?)?;
    // A container runs the node's programs, which it sees below `/usr`.
    add("usr/bin/busybox".to_owned(), &userland.find("busybox")?)?;
    // In addition to busybox's applets, and before them in `PATH`.
    let tools = TOOLS.map(|tool| (tool, format!("tools/{tool}")));
    let others = OTHERS.map(|(tool, place)| (tool, place.to_owned()));
    for (tool, place) in tools.into_iter().chain(others) {
        let tool_file = userland.find(tool)?;
        add(place, &tool_file)?;
        for (library, place) in userland.libraries(&tool_file)? {
            add(merged(&place), &library)?;
        }
    }
    Ok(files)
}

/// Adds a file.
pub(super) fn add(files: &mut Files, place: &str, file: &Path) -> Result<()> {
    files.insert(place.to_owned(), read(file)?);
    Ok(())
}

/// Writes the archive for one kernel.
pub(super) fn write(common: &Files, modules: &[PathBuf], archive: &Path) -> Result<()> {
    let mut files = common.clone();
    for module in modules {
        let name = module.file_name().unwrap_or_default().display();
        files.insert(format!("modules/{name}"), read(module)?);
    }
    let links = MERGED.map(|folder| (folder, format!("usr/{folder}")));
    let mut entries: BTreeMap<&str, (u32, &[u8])> =
        links.iter().map(|(folder, target)| (*folder, (LINK, target.as_bytes()))).collect();
    for (place, content) in &files {
        entries.insert(place, (PROGRAM, content));
        // The kernel does not create parent directories.
        for (end, _) in place.match_indices('/') {
            entries.insert(&place[..end], (DIRECTORY, &[]));
        }
    }
    let inputs = entries
        .into_iter()
        .map(|(place, (mode, content))| (NewcBuilder::new(place).mode(mode), Cursor::new(content)));
    let cannot = || format!("cannot write {}", archive.display());
    let file = BufWriter::new(File::create(archive).with_context(cannot)?);
    cpio::write_cpio(inputs, file).and_then(|mut file| file.flush()).with_context(cannot)
}

/// The path of a library with the links resolved.
fn merged(place: &Path) -> String {
    let is_merged = MERGED.iter().any(|folder| place.starts_with(folder));
    let place = place.display();
    if is_merged { format!("usr/{place}") } else { place.to_string() }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_what_is_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("archive");
        let files = Files::from([("a/b/c".to_owned(), b"content".to_vec())]);
        write(&files, &[], &archive).unwrap();
        let mut rest = Cursor::new(fs::read(&archive).unwrap());
        let mut names = Vec::new();
        loop {
            let entry = cpio::NewcReader::new(rest).unwrap();
            if entry.entry().is_trailer() {
                break;
            }
            names.push((entry.entry().name().to_owned(), entry.entry().mode()));
            rest = entry.finish().unwrap();
        }
        let expected = [
            ("a", DIRECTORY),
            ("a/b", DIRECTORY),
            ("a/b/c", PROGRAM),
            ("lib", LINK),
            ("lib64", LINK),
        ];
        assert_eq!(names, expected.map(|(name, mode)| (name.to_owned(), mode)));
    }

    #[test]
    fn libraries_lie_where_a_container_sees_them() {
        let merged = |place: &str| merged(Path::new(place));
        assert_eq!(merged("lib/x86_64-linux-gnu/libc.so.6"), "usr/lib/x86_64-linux-gnu/libc.so.6");
        assert_eq!(merged("usr/lib/libc.so.6"), "usr/lib/libc.so.6");
        assert_eq!(merged("lib64/ld-linux-x86-64.so.2"), "usr/lib64/ld-linux-x86-64.so.2");
    }
}
