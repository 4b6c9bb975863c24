//! What user space gives the probes before they are loaded: kernel layout and switches.
//!
//! Both are read-only globals, so the verifier sees constants and removes the branches that a
//! switch turns off.

/// Work areas per CPU for programs on functions: the number of these programs that may have preempted one another.
pub const SLOTS: u32 = 2;

/// An offset that this kernel's BTF does not have.
pub const NO_OFFSET: u32 = u32::MAX;

/// Where the running kernel keeps the fields that the path walk reads, in bytes from the start of
/// the structure named first. Rust cannot emit CO-RE relocations, so user space looks them up.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// 1 when every offset below is known; 0 switches paths off, counts and errnos remain.
    pub usable: u32,
    /// 1 when the kernel has `bpf_get_current_task_btf` (5.11): its result is read without a helper.
    pub typed_task: u32,
    /// `task_struct.files`
    pub task_files: u32,
    /// `task_struct.fs`
    pub task_fs: u32,
    /// `task_struct.real_parent`
    pub task_parent: u32,
    /// `task_struct.tgid`
    pub task_tgid: u32,
    /// `task_struct.comm`
    pub task_comm: u32,
    /// `task_struct.group_leader`
    pub task_leader: u32,
    /// `task_struct.start_boottime`
    pub task_started: u32,
    /// `task_struct.real_cred`
    pub task_cred: u32,
    /// `cred.uid`; seven other ids stand behind it
    pub cred_uid: u32,
    /// `cred.cap_effective`
    pub cred_effective: u32,
    /// `cred.user_ns`
    pub cred_user_ns: u32,
    /// `task_struct.nsproxy`
    pub task_nsproxy: u32,
    /// `nsproxy.mnt_ns`
    pub nsproxy_mnt_ns: u32,
    /// `mnt_namespace.ns.inum`
    pub mnt_ns_inum: u32,
    /// `mnt_namespace.user_ns`
    pub mnt_ns_owner: u32,
    /// `user_namespace.level`
    pub user_ns_level: u32,
    /// `files_struct.fdt`
    pub files_fdt: u32,
    /// `fdtable.max_fds`, with `fd` 8 bytes behind it
    pub fdt_max: u32,
    /// `file.f_path`
    pub file_path: u32,
    /// `fs_struct.root`
    pub fs_root: u32,
    /// `fs_struct.pwd`
    pub fs_pwd: u32,
    /// `dentry.d_parent`, with `d_name.hash_len`, `d_name.name` and `d_inode` behind it
    pub dentry_parent: u32,
    /// `inode.i_ino`
    pub inode_ino: u32,
    /// `inode.i_sb`
    pub inode_sb: u32,
    /// `super_block.s_dev`
    pub sb_dev: u32,
    /// `vfsmount.mnt_root`
    pub vfsmount_root: u32,
    /// `mount.mnt`
    pub mount_vfsmount: u32,
    /// `mount.mnt_parent`, with `mnt_mountpoint` behind it
    pub mount_parent: u32,
    /// `mount.mnt_id`
    pub mount_id: u32,
    /// `mount.mnt_ns`
    pub mount_ns: u32,
    /// `task_struct.seccomp.mode`; [`NO_OFFSET`] in a kernel without seccomp
    pub task_seccomp: u32,
    /// `opcode` in the context of tracepoint `io_uring:io_uring_queue_async_work`; [`NO_OFFSET`]
    /// before 5.19
    pub io_uring_opcode: u32,
    /// `io_kiocb.cqe.res`; this and the next four are [`NO_OFFSET`] before 6.0
    pub request_result: u32,
    /// `dfd` of the `struct io_unlink` at `io_kiocb.cmd`, from the start of the `io_kiocb`
    pub request_dfd: u32,
    /// Its `flags`
    pub request_flags: u32,
    /// Its `filename`
    pub request_filename: u32,
    /// `filename.name`
    pub filename_name: u32,
    /// The number, among the kernel's types, of a structure that begins with words which are no pointers: an
    /// address is given that type to load what lies there ([`CAST`]). 0 where the kernel does not let programs.
    pub words_type: u32,
}

/// In place of the number of the kernel's function `bpf_rdonly_cast` (6.2), which only the running kernel knows: a call
/// of a helper that does not exist. User space puts the function in its place, or leaves it where it
/// is never reached.
pub const CAST: i32 = 0x7050_6361;

/// How many marker names the probes compare with.
pub const MARKERS: usize = 8;

/// Bit of [`Marker::take`]: before they are deleted, its targets are moved aside, to two components below the one named
/// by [`Config::aside`].
pub const ASIDE: u32 = 1 << 16;

/// A directory name that says "what comes next identifies something": `pods`, `overlay2`, ...
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marker {
    /// [`crate::component::component_hash`] of the name; 0 in an unused slot.
    pub hash: u64,
    /// How many path components after the marker belong to the target; with [`ASIDE`].
    pub take: u32,
    /// 1 when the first of them must be a pod UID.
    pub pod: u32,
}

/// Switches of one run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Calls that take at least this long, in nanoseconds, are reported one by one, whatever their
    /// outcome.
    pub slow_ns: u64,
    /// [`crate::component::component_hash`] of the only pod UID wanted; 0 for all.
    pub only_pod: u64,
    /// Rolling hash of the only directory wanted (see [`crate::component::path_hash`]); 0 for all.
    pub only_path: u64,
    /// [`crate::component::component_hash`] of the directory that targets are moved aside to; 0 for none.
    pub aside: u64,
    /// What only the tool knows: with it, it shows a directory to the probes (see [`crate::root`]).
    pub secret: u64,
    /// The tool's own process: its calls prove that a probe fires and are not counted.
    pub own_tgid: u32,
    /// 1 when this kernel's layout is not known: then objects cannot be distinguished, and the text of a path
    /// is believed.
    pub by_text: u32,
    /// 1 when no probe hangs on a function by `fentry`: of the others one at a time runs on a CPU.
    pub one_slot: u32,
    /// After which step of a call the programs stop, of [`step`]; 0 after the last.
    pub stop_after: u32,
    /// The names that start a target.
    pub markers: [Marker; MARKERS],
}

/// What the programs do about a call, step by step. They are stopped for a benchmark only: what the kernel gets
/// to run has the later steps removed.
pub mod step {
    /// They are entered.
    pub const PAIR: u32 = 1;
    /// The clock is read at the entry and at the return.
    pub const CLOCKS: u32 = 2;
    /// The call is noted at the entry, and taken at the return.
    pub const SLOT: u32 = 3;
    /// The directory that its path begins at is found.
    pub const DIRECTORY: u32 = 4;
    /// What is known of that directory is recalled, or read.
    pub const RECALL: u32 = 5;
    /// The call is counted.
    pub const COUNT: u32 = 6;
}

impl Config {
    /// Nothing is wanted, slow or known.
    pub const EMPTY: Self = Self {
        slow_ns: u64::MAX,
        only_pod: 0,
        only_path: 0,
        aside: 0,
        secret: 0,
        own_tgid: 0,
        by_text: 0,
        one_slot: 0,
        stop_after: 0,
        markers: [Marker { hash: 0, take: 0, pod: 0 }; MARKERS],
    };
}

#[cfg(feature = "user")]
mod pod {
    use super::{Config, Offsets};
    // SAFETY: `repr(C)` of integers without padding (asserted below), valid for every bit pattern.
    unsafe impl aya::Pod for Offsets {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Config {}
}

const _: () = assert!(size_of::<Offsets>() == 40 * 4);
const _: () = assert!(size_of::<Marker>() == 16);
const _: () = assert!(size_of::<Config>() == 5 * 8 + 4 * 4 + MARKERS * 16);
