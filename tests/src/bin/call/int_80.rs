//! A call by the 32-bit interface of an x86-64 kernel, which a 64-bit process may use as well: the
//! kernel cannot tell it from a 32-bit program's.

use std::{
    arch::asm,
    num::NonZeroUsize,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use anyhow::{Context, Result, ensure};
use nix::{
    errno::Errno,
    sys::mman::{MapFlags, ProtFlags, mmap_anonymous},
};

/// `__NR_unlinkat` of arch/x86/entry/syscalls/syscall_32.tbl
const UNLINKAT: u32 = 301;
const ROOM: usize = 4096;

/// `unlinkat(dir, name, 0)`
pub(crate) fn unlinkat(dir: &OwnedFd, name: &Path) -> Result<nix::Result<()>> {
    let name = name.as_os_str().as_bytes();
    ensure!(name.len() < ROOM, "the name is too long");
    let size = NonZeroUsize::new(ROOM).context("a page has a size")?;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_32BIT;
    // SAFETY: new memory at an address of the kernel's choice. It stays until the process ends.
    let room = unsafe { mmap_anonymous(None, size, ProtFlags::PROT_WRITE, flags) }
        .context("memory at an address of 32 bits")?;
    // SAFETY: the room is larger than the name, nothing else uses it, and it is zeroed.
    unsafe { room.as_ptr().cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len()) };
    let result: i32;
    // SAFETY: the arguments are a descriptor, a string that ends with NUL, and no flags. The kernel
    // changes rax and may clear r8 to r11. rbx is the compiler's own, hence the exchange.
    unsafe {
        asm!(
            "xchg rbx, {dir}",
            "int 0x80",
            "xchg rbx, {dir}",
            dir = inout(reg) u64::from(dir.as_raw_fd().cast_unsigned()) => _,
            inlateout("eax") UNLINKAT => result,
            in("ecx") room.as_ptr() as usize,
            in("edx") 0,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
        );
    }
    Ok(if result < 0 { Err(Errno::from_raw(-result)) } else { Ok(()) })
}
