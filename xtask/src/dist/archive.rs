//! Archives whose bytes depend only on their contents.

use std::io::Write;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// An archive in memory, owned by root.
pub(super) struct Archive {
    builder: Builder<Vec<u8>>,
    time: u64,
}

impl Archive {
    /// An empty archive, whose files get this modification time.
    pub(super) fn new(time: u64) -> Self {
        Self { builder: Builder::new(Vec::new()), time }
    }

    /// Adds a directory; the name has no slash at its end.
    pub(super) fn directory(&mut self, name: &str, mode: u32) -> Result<()> {
        let mut header = self.header(EntryType::Directory, mode, 0);
        let added = self.builder.append_data(&mut header, format!("{name}/"), std::io::empty());
        added.with_context(|| format!("packing {name}"))
    }

    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = self.header(EntryType::Regular, mode, content.len());
        let added = self.builder.append_data(&mut header, name, content);
        added.with_context(|| format!("packing {name}"))
    }

    /// The bytes of the archive.
    pub(super) fn finish(self) -> Result<Vec<u8>> {
        self.builder.into_inner().context("ending an archive")
    }

    fn header(&self, kind: EntryType, mode: u32, size: usize) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(size as u64);
        header.set_mtime(self.time);
        header
    }
}

/// Compresses like gzip, without a time or a name.
pub(super) fn gzip(bytes: &[u8], quick: bool) -> Result<Vec<u8>> {
    let level = if quick { Compression::fast() } else { Compression::best() };
    let mut packer = GzBuilder::new().mtime(0).write(Vec::new(), level);
    packer.write_all(bytes).and_then(|()| packer.finish()).context("compressing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        let made = |time| {
            let mut archive = Archive::new(time);
            archive.directory("a", 0o755).unwrap();
            archive.file("a/b", 0o644, b"text").unwrap();
            gzip(&archive.finish().unwrap(), true).unwrap()
        };
        assert_eq!(made(5), made(5));
        assert_ne!(made(5), made(6));
        let packed = made(5);
        let mut read = tar::Archive::new(flate2::read::GzDecoder::new(&packed[..]));
        let entries: Vec<_> = read.entries().unwrap().map(|entry| entry.unwrap()).collect();
        let names: Vec<_> =
            entries.iter().map(|entry| entry.path().unwrap().into_owned()).collect();
        assert_eq!(names, ["a/", "a/b"].map(std::path::PathBuf::from));
        assert!(entries.iter().all(|entry| entry.header().uid().unwrap() == 0));
    }
}
