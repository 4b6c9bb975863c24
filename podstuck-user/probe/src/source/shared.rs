//! Arrays that the probes write, and that are read without a system call: while a system call on a map runs, its CPU
//! runs no program on a tracepoint (see `tables`).

use std::{num::NonZeroUsize, ptr::NonNull, slice, sync::atomic::AtomicU64};

use anyhow::{Context, Result, bail};
use aya::maps::Map;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// A type that may be in shared memory.
///
/// # Safety
/// Every value is valid, all access is by atomic instructions, and the size is that of an entry in the kernel.
pub(super) unsafe trait Shareable {}

// SAFETY: an aligned word of 8 bytes.
unsafe impl Shareable for AtomicU64 {}

/// The entries of an array map.
#[derive(Debug)]
pub(super) struct Shared<T: Shareable> {
    first: NonNull<T>,
    len: usize,
    bytes: NonZeroUsize,
}

// SAFETY: the memory belongs to no thread, and is read and written by atomic instructions only.
unsafe impl<T: Shareable> Send for Shared<T> {}

impl<T: Shareable> Shared<T> {
    /// Maps the first `len` entries, for as long as this value lives.
    pub(super) fn map(table: Map, len: usize) -> Result<Self> {
        let Map::Array(table) = table else { bail!("the map is not an array") };
        let bytes = NonZeroUsize::new(len * size_of::<T>()).context("nothing to be mapped")?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: new memory, at an address of the kernel's choice.
        let memory = unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED, table.fd(), 0) };
        Ok(Self { first: memory.context("mapping it")?.cast(), len, bytes })
    }

    /// All entries.
    pub(super) fn all(&self) -> &[T] {
        // SAFETY: `len` entries were mapped, on whole pages.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: Shareable> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and no reference to it can be left.
        if let Err(error) = unsafe { munmap(self.first.cast(), self.bytes.get()) } {
            tracing::warn!("unmapping an array: {error}");
        }
    }
}
