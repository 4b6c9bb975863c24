//! Settings that user space passes to the probes at load time: kernel layout and switches.
//!
//! Both are read-only globals, so the verifier sees constants and removes the branches that a switch disables.

/// Number of work areas per CPU for programs on functions: how many of these programs may have preempted one another.
pub const SLOTS: u32 = 2;

/// An offset that this kernel's BTF lacks.
pub const NO_OFFSET: u32 = u32::MAX;

/// Offsets of the fields that the path walk reads in the running kernel, in bytes from the start of the named
/// structure. Rust cannot emit CO-RE relocations, so user space reads them from BTF.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// 1 if all offsets below are known. 0 disables paths; counts and errnos remain.
    pub usable: u32,
    /// 1 if the kernel has `bpf_get_current_task_btf` (5.11), whose result can be read without a helper.
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
    /// `cred.uid`, followed by seven other ids
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
    /// `fdtable.max_fds`, followed by `fd` after 8 bytes
    pub fdt_max: u32,
    /// `file.f_path`
    pub file_path: u32,
    /// `fs_struct.root`
    pub fs_root: u32,
    /// `fs_struct.pwd`
    pub fs_pwd: u32,
    /// `dentry.d_parent`, followed by `d_name.hash_len`, `d_name.name` and `d_inode`
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
    /// `mount.mnt_parent`, followed by `mnt_mountpoint`
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
    /// Its `flags` field
    pub request_flags: u32,
    /// Its `filename` field
    pub request_filename: u32,
    /// `filename.name`
    pub filename_name: u32,
    /// `task_struct.blocker`; [`NO_OFFSET`] before 6.16, and without `CONFIG_DETECT_HUNG_TASK_BLOCKER`
    pub task_blocker: u32,
    /// `task_struct.pid`
    pub task_pid: u32,
    /// `mutex.owner`
    pub mutex_owner: u32,
    /// `rw_semaphore.owner`
    pub rwsem_owner: u32,
    /// `semaphore.last_holder`; [`NO_OFFSET`] where the kernel does not keep it
    pub semaphore_holder: u32,
    /// BTF id of a structure that begins with words that are not pointers. An address is cast to this type to load
    /// the words at it ([`CAST`]). 0 if the kernel does not permit that.
    pub words_type: u32,
}

/// Placeholder for the BTF id of the kernel function `bpf_rdonly_cast` (6.2), which only the running kernel knows: a
/// call of a helper that does not exist. User space replaces it with the function; otherwise the call is unreachable.
pub const CAST: i32 = 0x7050_6361;

/// Maximum number of marker names.
pub const MARKERS: usize = 8;

/// Bit of [`Marker::take`]: before its targets are deleted, they are moved aside, to two components below the one
/// that [`Config::aside`] names.
pub const ASIDE: u32 = 1 << 16;

/// A directory name after which the next components identify a target: `pods`, `overlay2`, ...
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marker {
    /// [`crate::component::component_hash`] of the name; 0 in an unused slot.
    pub hash: u64,
    /// Number of path components after the marker that belong to the target; may include [`ASIDE`].
    pub take: u32,
    /// 1 if the first of them must be a pod UID.
    pub pod: u32,
}

/// The switches of one run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Calls that take at least this long, in nanoseconds, are reported individually, whatever their outcome.
    pub slow_ns: u64,
    /// [`crate::component::component_hash`] of the only pod UID wanted; 0 for all.
    pub only_pod: u64,
    /// Rolling hash of the only directory wanted (see [`crate::component::path_hash`]); 0 for all.
    pub only_path: u64,
    /// [`crate::component::component_hash`] of the directory that targets are moved aside to; 0 for none.
    pub aside: u64,
    /// A secret of this process, with which it passes directories to the probes (see [`crate::root`]).
    pub secret: u64,
    /// Process id of podstuck. Its own calls prove that a probe fires and are not counted.
    pub own_tgid: u32,
    /// 1 if this kernel's layout is unknown. Objects cannot be distinguished then, and the text of a path is trusted.
    pub by_text: u32,
    /// 1 if no probe uses `fentry`. Of all other programs, one at a time runs on a CPU.
    pub one_slot: u32,
    /// The step after which the programs stop, of [`step`]; 0 to run all.
    pub stop_after: u32,
    /// 1 if the programs outlive podstuck (see [`crate::kept`]).
    pub kept: u32,
    /// The turn of the process, then (see [`crate::kept::TURN`]).
    pub turn: u32,
    /// The markers of targets.
    pub markers: [Marker; MARKERS],
}

/// The steps that the programs take for a call. They stop early only for a benchmark; the later steps are then
/// removed at load time.
pub mod step {
    /// The entry and the return are reached.
    pub const PAIR: u32 = 1;
    /// The clock is read at the entry and at the return.
    pub const CLOCKS: u32 = 2;
    /// The call is stored at the entry and taken at the return.
    pub const SLOT: u32 = 3;
    /// The directory from which its path starts is found.
    pub const DIRECTORY: u32 = 4;
    /// The directory's trail is taken from the cache or read.
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
        kept: 0,
        turn: 0,
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

const _: () = assert!(size_of::<Offsets>() == 45 * 4);
const _: () = assert!(size_of::<Marker>() == 16);
const _: () = assert!(size_of::<Config>() == 5 * 8 + 6 * 4 + MARKERS * 16);
