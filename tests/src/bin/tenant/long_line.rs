//! A process whose command line, as `/proc` shows it, is as long as it likes: any part of a process's memory can
//! be shown as such. It ends with a path that belongs to another pod.

use std::{
    fs,
    io::{self, Write},
    num::NonZeroUsize,
    os::unix::ffi::OsStrExt,
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use nix::{
    libc,
    sys::mman::{MapFlags, ProtFlags, mmap_anonymous},
};

/// Fields of `/proc/PID/stat` (proc_pid_stat(5)) behind the name, the first of which is the third.
const BEHIND_NAME: usize = 3;

/// Shows a command line of this many bytes, and waits.
pub(crate) fn show(length: u64, path: &Path) -> Result<()> {
    let length = usize::try_from(length).context("too long for this machine")?;
    // What is not written is one page of zeros for all.
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let whole = NonZeroUsize::new(length).context("no length")?;
    // SAFETY: a new mapping of nothing.
    let line = unsafe { mmap_anonymous(None, whole, access, flags) }.context("mmap")?;
    let words = [b"umount\0", path.as_os_str().as_bytes(), b"\0"].concat();
    for at in [0, length - words.len()] {
        // SAFETY: within the mapping, which nothing else uses.
        unsafe {
            line.as_ptr()
                .cast::<u8>()
                .add(at)
                .copy_from_nonoverlapping(words.as_ptr(), words.len());
        }
    }
    show_as_line(line.as_ptr() as u64, length as u64)?;
    println!("ready");
    io::stdout().flush()?;
    loop {
        thread::sleep(Duration::from_secs(600));
    }
}

/// `struct prctl_mm_map` of include/uapi/linux/prctl.h.
#[repr(C)]
struct Map {
    start_code: u64,
    end_code: u64,
    start_data: u64,
    end_data: u64,
    start_brk: u64,
    brk: u64,
    start_stack: u64,
    arg_start: u64,
    arg_end: u64,
    env_start: u64,
    env_end: u64,
    auxv: u64,
    auxv_size: u32,
    exe_fd: u32,
}

/// Takes no privilege, unlike the options for single fields.
fn show_as_line(start: u64, length: u64) -> Result<()> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = text.rsplit_once(") ").context("stat")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let field = |number: usize| -> Result<u64> {
        Ok(fields.get(number - BEHIND_NAME).context("stat is short")?.trim().parse()?)
    };
    let map = Map {
        start_code: field(26)?,
        end_code: field(27)?,
        start_data: field(45)?,
        end_data: field(46)?,
        start_brk: field(47)?,
        brk: field(47)?,
        start_stack: field(28)?,
        arg_start: start,
        arg_end: start + length,
        env_start: start,
        env_end: start,
        auxv: 0,
        auxv_size: 0,
        exe_fd: u32::MAX,
    };
    // SAFETY: the kernel copies the structure, whose size it is given.
    let done = unsafe {
        libc::prctl(libc::PR_SET_MM, libc::PR_SET_MM_MAP, &raw const map, size_of::<Map>(), 0)
    };
    nix::errno::Errno::result(done).context("prctl(PR_SET_MM_MAP)")?;
    Ok(())
}
