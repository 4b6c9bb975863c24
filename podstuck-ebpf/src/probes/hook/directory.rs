//! The directory that the kernel has resolved for a deletion: it hands it to its security modules, after all
//! links and mounts on the way were followed, and before it decides about permissions (`do_unlinkat` and
//! `do_rmdir` in fs/namei.c). Only kernels with `CONFIG_SECURITY_PATH` have these functions.

use core::mem::offset_of;

use aya_ebpf::{
    macros::{fentry, kprobe},
    programs::{FEntryContext, ProbeContext},
};
use podstuck_common::in_flight::Resolved;

use crate::probes::{
    globals::offsets,
    in_flight,
    kernel::{field, follow},
    kernel_path::{Dentry, KernelPath},
};

/// On `int security_path_unlink(const struct path *dir, struct dentry *dentry)`. Every removal of a file
/// pays for it, so it only takes note.
///
/// A call may come here more than once: where its attempt was stale (ESTALE), or waits until others give up a
/// delegation. The last one counts, since its outcome is the call's. Deletions that a file system makes below
/// another (overlayfs) do not come here.
#[fentry]
fn fentry_security_path_unlink(ctx: FEntryContext) -> i32 {
    note(&ctx);
    0
}

/// On `int security_path_rmdir(const struct path *dir, struct dentry *dentry)`.
#[fentry]
fn fentry_security_path_rmdir(ctx: FEntryContext) -> i32 {
    note(&ctx);
    0
}

/// The same, where programs hang on functions by kprobes only.
#[kprobe]
fn kprobe_security_path_unlink(ctx: ProbeContext) -> u32 {
    note_untyped(&ctx);
    0
}

#[kprobe]
fn kprobe_security_path_rmdir(ctx: ProbeContext) -> u32 {
    note_untyped(&ctx);
    0
}

/// Where `d_inode` is in a dentry.
#[inline(always)]
fn inode_offset() -> u32 {
    offsets().dentry_parent + offset_of!(Dentry, inode) as u32
}

#[inline(always)]
fn note_untyped(ctx: &ProbeContext) -> Option<()> {
    let path: *const u8 = ctx.arg(0)?;
    let KernelPath { mnt, dentry } = field(path as u64, 0)?;
    let inode: u64 = field(dentry, inode_offset())?;
    in_flight::resolved(Resolved { mnt, dentry, inode: inode as u32 });
    Some(())
}

#[inline(always)]
fn note(ctx: &FEntryContext) {
    let inode = inode_offset();
    let path: *const u8 = ctx.arg(0);
    // SAFETY: `path->{mnt,dentry->d_inode}`, from an argument.
    let directory = unsafe {
        let mnt: u64 = follow(path, offset_of!(KernelPath, mnt) as u32);
        let dentry: *const u8 = follow(path, offset_of!(KernelPath, dentry) as u32);
        let inode: u64 = follow(dentry, inode);
        Resolved { mnt, dentry: dentry as u64, inode: inode as u32 }
    };
    in_flight::resolved(directory);
}
