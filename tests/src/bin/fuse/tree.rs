//! The files and directories.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
};

use fuser::{Errno, FileAttr, FileType, INodeNo};
use podstuck_lab::fuse::attributes;

/// All that there ever were: what has no name any more may be open.
pub(crate) struct Tree(Vec<Node>);

struct Node {
    mode: u16,
    what: What,
}

enum What {
    File(Vec<u8>),
    Directory(BTreeMap<OsString, INodeNo>),
}

impl Default for Tree {
    fn default() -> Self {
        Self(vec![Node { mode: 0o755, what: What::Directory(BTreeMap::new()) }])
    }
}

impl Tree {
    fn node(&self, inode: INodeNo) -> Result<&Node, Errno> {
        index(inode).and_then(|index| self.0.get(index)).ok_or(Errno::ENOENT)
    }

    fn node_mut(&mut self, inode: INodeNo) -> Result<&mut Node, Errno> {
        index(inode).and_then(|index| self.0.get_mut(index)).ok_or(Errno::ENOENT)
    }

    fn directory(&mut self, inode: INodeNo) -> Result<&mut BTreeMap<OsString, INodeNo>, Errno> {
        match &mut self.node_mut(inode)?.what {
            What::Directory(names) => Ok(names),
            What::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn file(&mut self, inode: INodeNo) -> Result<&mut Vec<u8>, Errno> {
        match &mut self.node_mut(inode)?.what {
            What::File(data) => Ok(data),
            What::Directory(_) => Err(Errno::EISDIR),
        }
    }

    pub(crate) fn attributes(&self, inode: INodeNo) -> Result<FileAttr, Errno> {
        let node = self.node(inode)?;
        let (kind, size) = match &node.what {
            What::File(data) => (FileType::RegularFile, data.len() as u64),
            What::Directory(_) => (FileType::Directory, 0),
        };
        Ok(attributes(inode, kind, node.mode, size))
    }

    pub(crate) fn find(&mut self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let inode = *self.directory(parent)?.get(name).ok_or(Errno::ENOENT)?;
        self.attributes(inode)
    }

    pub(crate) fn change(
        &mut self,
        inode: INodeNo,
        mode: Option<u32>,
        size: Option<u64>,
    ) -> Result<FileAttr, Errno> {
        if let Some(mode) = mode {
            self.node_mut(inode)?.mode = permissions(mode);
        }
        if let Some(size) = size {
            self.file(inode)?.resize(usize::try_from(size).map_err(|_| Errno::EFBIG)?, 0);
        }
        self.attributes(inode)
    }

    pub(crate) fn add(
        &mut self,
        parent: INodeNo,
        name: &OsStr,
        kind: FileType,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        let what = match kind {
            FileType::Directory => What::Directory(BTreeMap::new()),
            _ => What::File(Vec::new()),
        };
        let inode = INodeNo(self.0.len() as u64 + 1);
        self.directory(parent)?.insert(name.to_owned(), inode);
        self.0.push(Node { mode: permissions(mode), what });
        self.attributes(inode)
    }

    pub(crate) fn take(&mut self, parent: INodeNo, name: &OsStr) -> Result<INodeNo, Errno> {
        self.directory(parent)?.remove(name).ok_or(Errno::ENOENT)
    }

    pub(crate) fn rename(
        &mut self,
        (parent, name): (INodeNo, &OsStr),
        (to, as_name): (INodeNo, &OsStr),
    ) -> Result<(), Errno> {
        let inode = self.take(parent, name)?;
        self.directory(to)?.insert(as_name.to_owned(), inode);
        Ok(())
    }

    pub(crate) fn names(
        &self,
        inode: INodeNo,
    ) -> Result<impl Iterator<Item = (&OsStr, FileAttr)>, Errno> {
        let What::Directory(names) = &self.node(inode)?.what else { return Err(Errno::ENOTDIR) };
        Ok(names
            .iter()
            .filter_map(|(name, inode)| Some((name.as_os_str(), self.attributes(*inode).ok()?))))
    }

    pub(crate) fn read(&self, inode: INodeNo, offset: u64, size: u32) -> Result<&[u8], Errno> {
        let What::File(data) = &self.node(inode)?.what else { return Err(Errno::EISDIR) };
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
        let end = begin.saturating_add(size as usize).min(data.len());
        Ok(&data[begin..end])
    }

    pub(crate) fn write(&mut self, inode: INodeNo, offset: u64, part: &[u8]) -> Result<u32, Errno> {
        let begin = usize::try_from(offset).map_err(|_| Errno::EFBIG)?;
        let file = self.file(inode)?;
        let end = begin.checked_add(part.len()).ok_or(Errno::EFBIG)?;
        if file.len() < end {
            file.resize(end, 0);
        }
        file[begin..end].copy_from_slice(part);
        u32::try_from(part.len()).map_err(|_| Errno::EFBIG)
    }
}

fn index(inode: INodeNo) -> Option<usize> {
    usize::try_from(inode.0).ok()?.checked_sub(1)
}

fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}
