//! Offsets of the running kernel's structures, for the probes' path walk.

use std::{fs, io, path::Path};

use aya::{
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported},
};
use podstuck_common::{
    config::{NO_OFFSET, Offsets},
    entry_point::ON_ARM64,
};

use super::{
    btf::Btf,
    hooks::{self, DirectoryHook, Pair},
};

/// The kernel's description of its own types.
pub const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

/// What is known of this kernel's structures.
pub struct Layout {
    /// Offsets for the probes. Not usable when a needed field is missing.
    pub offsets: Offsets,
    /// What is missing, and what is lost with it; empty when nothing is.
    pub problems: Vec<String>,
    /// Whether the kernel runs 32-bit programs.
    pub has_32_bit: bool,
    /// What the kernel shows of deletions by io_uring; `None` when it cannot delete.
    pub io_uring: Option<IoUring>,
    /// Whether the kernel can report the directory that it resolved for a deletion.
    pub tells_directories: bool,
    /// Whether the kernel keeps the lock that a task sleeps for (Linux 6.16).
    pub keeps_locks: bool,
    /// The BTF number of the function that gives addresses a type; `None` without one, or the probes do not
    /// use it.
    pub cast: Option<u32>,
}

impl Layout {
    /// The layout for a kernel that lets no program call that function.
    pub(super) fn without_cast(&self) -> Self {
        let none = Offsets { words_type: 0, ..self.offsets };
        Self { offsets: none, problems: self.problems.clone(), cast: None, ..*self }
    }
}

/// What a kernel shows of deletions by io_uring (`IORING_OP_UNLINKAT`, Linux 5.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoUring {
    /// The function that deletes can be hooked, and its request can be read (Linux 6.0).
    pub countable: bool,
    /// A tracepoint shows that a request is a deletion (Linux 5.19).
    pub noticeable: bool,
}

/// Reads the running kernel's layout. Never fails: without it counts and errnos remain.
pub fn read(path: &Path) -> Layout {
    match fs::read(path) {
        Ok(data) => match Btf::parse(&data) {
            Ok(btf) => from_btf(&btf),
            Err(error) => unusable(format!("{}: {error}", path.display())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => unusable(format!(
            "{} does not exist: this kernel was built without CONFIG_DEBUG_INFO_BTF",
            path.display()
        )),
        Err(error) => unusable(format!("{}: {error}", path.display())),
    }
}

fn unusable(why: String) -> Layout {
    Layout {
        offsets: NOTHING,
        problems: vec![format!("{why}; {LOST}")],
        has_32_bit: false,
        io_uring: None,
        tells_directories: false,
        keeps_locks: false,
        cast: None,
    }
}

const LOST: &str =
    "paths below a directory descriptor are not resolved; counts and errnos still are";

const NOTHING: Offsets = Offsets {
    usable: 0,
    typed_task: 0,
    task_files: NO_OFFSET,
    task_fs: NO_OFFSET,
    task_parent: NO_OFFSET,
    task_tgid: NO_OFFSET,
    task_comm: NO_OFFSET,
    task_leader: NO_OFFSET,
    task_started: NO_OFFSET,
    task_cred: NO_OFFSET,
    cred_uid: NO_OFFSET,
    cred_effective: NO_OFFSET,
    cred_user_ns: NO_OFFSET,
    task_nsproxy: NO_OFFSET,
    nsproxy_mnt_ns: NO_OFFSET,
    mnt_ns_inum: NO_OFFSET,
    mnt_ns_owner: NO_OFFSET,
    user_ns_level: NO_OFFSET,
    files_fdt: NO_OFFSET,
    fdt_max: NO_OFFSET,
    file_path: NO_OFFSET,
    fs_root: NO_OFFSET,
    fs_pwd: NO_OFFSET,
    dentry_parent: NO_OFFSET,
    inode_ino: NO_OFFSET,
    inode_sb: NO_OFFSET,
    sb_dev: NO_OFFSET,
    vfsmount_root: NO_OFFSET,
    mount_vfsmount: NO_OFFSET,
    mount_parent: NO_OFFSET,
    mount_id: NO_OFFSET,
    mount_ns: NO_OFFSET,
    task_seccomp: NO_OFFSET,
    io_uring_opcode: NO_OFFSET,
    request_result: NO_OFFSET,
    request_dfd: NO_OFFSET,
    request_flags: NO_OFFSET,
    request_filename: NO_OFFSET,
    filename_name: NO_OFFSET,
    task_blocker: NO_OFFSET,
    task_pid: NO_OFFSET,
    mutex_owner: NO_OFFSET,
    rwsem_owner: NO_OFFSET,
    semaphore_holder: NO_OFFSET,
    words_type: 0,
};

/// The context of tracepoint `io_uring:io_uring_queue_async_work`.
const IO_URING_EVENT: &str = "trace_event_raw_io_uring_queue_async_work";

/// Fields that the probes read at once, each `apart` bytes after the one before it, as in every kernel from 5.10 to
/// 7.1.
struct Together {
    apart: u32,
    structure: &'static str,
    fields: &'static [&'static str],
}

const TOGETHER: [Together; 5] = [
    Together { apart: 8, structure: "path", fields: &["mnt", "dentry"] },
    Together { apart: 8, structure: "mount", fields: &["mnt_parent", "mnt_mountpoint"] },
    Together { apart: 8, structure: "fdtable", fields: &["max_fds", "fd"] },
    Together {
        apart: 4,
        structure: "cred",
        fields: &["uid", "gid", "suid", "sgid", "euid", "egid", "fsuid", "fsgid"],
    },
    Together {
        apart: 8,
        structure: "dentry",
        fields: &["d_parent", "d_name.hash_len", "d_name.name", "d_inode"],
    },
];

impl Together {
    fn problem(&self, btf: &Btf<'_>) -> Option<String> {
        let offsets: Option<Vec<u32>> =
            self.fields.iter().map(|field| btf.offset(self.structure, field)).collect();
        let in_order =
            offsets.is_some_and(|all| all.windows(2).all(|pair| pair[1] == pair[0] + self.apart));
        (!in_order).then(|| {
            format!(
                "this kernel's `struct {}` does not have {} in this order without a gap; {LOST}",
                self.structure,
                self.fields.join(", "),
            )
        })
    }
}

/// Asks the kernel to load a program of a few instructions with this helper.
fn has_typed_task() -> bool {
    const HELPER: BpfHelper = BpfHelper::BPF_FUNC_get_current_task_btf;
    is_helper_supported(ProgramType::TracePoint, HELPER).unwrap_or(false)
}

/// The pure part of [`read`]: a field that this kernel lacks turns the walk off and is named.
fn from_btf(btf: &Btf<'_>) -> Layout {
    let mut problems = Vec::new();
    let mut at = |structure: &str, field: &str| {
        btf.offset(structure, field).unwrap_or_else(|| {
            problems
                .push(format!("this kernel's `struct {structure}` has no field `{field}`; {LOST}"));
            NO_OFFSET
        })
    };
    // A request of io_uring begins with its command.
    let request = |field| Some(btf.offset("io_kiocb", "cmd")? + btf.offset("io_unlink", field)?);
    let mut offsets = Offsets {
        usable: 0,
        typed_task: u32::from(has_typed_task()),
        task_files: at("task_struct", "files"),
        task_fs: at("task_struct", "fs"),
        task_parent: at("task_struct", "real_parent"),
        task_tgid: at("task_struct", "tgid"),
        task_comm: at("task_struct", "comm"),
        task_leader: at("task_struct", "group_leader"),
        task_started: at("task_struct", "start_boottime"),
        task_cred: at("task_struct", "real_cred"),
        cred_uid: at("cred", "uid"),
        cred_effective: at("cred", "cap_effective"),
        cred_user_ns: at("cred", "user_ns"),
        task_nsproxy: at("task_struct", "nsproxy"),
        nsproxy_mnt_ns: at("nsproxy", "mnt_ns"),
        mnt_ns_inum: at("mnt_namespace", "ns.inum"),
        mnt_ns_owner: at("mnt_namespace", "user_ns"),
        user_ns_level: at("user_namespace", "level"),
        files_fdt: at("files_struct", "fdt"),
        fdt_max: at("fdtable", "max_fds"),
        file_path: at("file", "f_path"),
        fs_root: at("fs_struct", "root"),
        fs_pwd: at("fs_struct", "pwd"),
        dentry_parent: at("dentry", "d_parent"),
        inode_ino: at("inode", "i_ino"),
        inode_sb: at("inode", "i_sb"),
        sb_dev: at("super_block", "s_dev"),
        vfsmount_root: at("vfsmount", "mnt_root"),
        mount_vfsmount: at("mount", "mnt"),
        mount_parent: at("mount", "mnt_parent"),
        mount_id: at("mount", "mnt_id"),
        mount_ns: at("mount", "mnt_ns"),
        // Not needed for paths.
        task_seccomp: btf.offset("task_struct", "seccomp.mode").unwrap_or(NO_OFFSET),
        io_uring_opcode: btf.offset(IO_URING_EVENT, "opcode").unwrap_or(NO_OFFSET),
        request_result: btf.offset("io_kiocb", "cqe.res").unwrap_or(NO_OFFSET),
        request_dfd: request("dfd").unwrap_or(NO_OFFSET),
        request_flags: request("flags").unwrap_or(NO_OFFSET),
        request_filename: request("filename").unwrap_or(NO_OFFSET),
        filename_name: btf.offset("filename", "name").unwrap_or(NO_OFFSET),
        task_blocker: btf.offset("task_struct", "blocker").unwrap_or(NO_OFFSET),
        task_pid: btf.offset("task_struct", "pid").unwrap_or(NO_OFFSET),
        mutex_owner: btf.offset("mutex", "owner").unwrap_or(NO_OFFSET),
        rwsem_owner: btf.offset("rw_semaphore", "owner").unwrap_or(NO_OFFSET),
        semaphore_holder: btf.offset("semaphore", "last_holder").unwrap_or(NO_OFFSET),
        ..NOTHING
    };
    problems.extend(TOGETHER.iter().filter_map(|together| together.problem(btf)));
    offsets.usable = u32::from(problems.is_empty());
    let cast = cast(btf, &mut offsets);
    let needed = [
        offsets.request_result,
        offsets.request_dfd,
        offsets.request_flags,
        offsets.request_filename,
        offsets.filename_name,
    ];
    let io_uring = btf.offset("io_unlink", "flags").map(|_| IoUring {
        countable: !needed.contains(&NO_OFFSET) && has_any(btf, &hooks::io_uring()),
        noticeable: offsets.io_uring_opcode != NO_OFFSET,
    });
    let has_32_bit = has_32_bit(btf);
    let has = |hook: &DirectoryHook| btf.has_function(hook.function());
    let tells_directories = offsets.usable != 0 && DirectoryHook::ALL.iter().all(has);
    let of_locks = [
        offsets.task_blocker,
        offsets.task_pid,
        offsets.task_tgid,
        offsets.mutex_owner,
        offsets.rwsem_owner,
    ];
    let keeps_locks = !of_locks.contains(&NO_OFFSET) && btf.has_function("bpf_iter_task");
    Layout { offsets, problems, has_32_bit, io_uring, tells_directories, keeps_locks, cast }
}

/// `compat_sys_openat` exists with `CONFIG_COMPAT` only; on arm64 the functions that matter always exist.
fn has_32_bit(btf: &Btf<'_>) -> bool {
    if ON_ARM64 {
        btf.has_function("__arm64_compat_sys_openat")
    } else {
        has_any(btf, &hooks::of_32_bit())
    }
}

/// The function that gives addresses a type, if it and the type that the probes give are known.
fn cast(btf: &Btf<'_>, offsets: &mut Offsets) -> Option<u32> {
    if offsets.usable == 0 || offsets.typed_task == 0 {
        return None;
    }
    let function = btf.function("bpf_rdonly_cast")?;
    // As in every kernel with that function: on x86 the type begins with ten registers, on arm64 with 31.
    offsets.words_type =
        btf.structure(if cfg!(target_arch = "x86_64") { "pt_regs" } else { "user_pt_regs" })?;
    Some(function)
}

/// Whether this kernel has such entry points.
fn has_any(btf: &Btf<'_>, pairs: &[Pair]) -> bool {
    pairs.iter().any(|pair| btf.has_function(pair.function()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_btf_is_reported() {
        let layout = read(Path::new("/nonexistent/btf"));
        assert_eq!(layout.offsets.usable, 0);
        assert!(layout.problems[0].contains("CONFIG_DEBUG_INFO_BTF"), "{:?}", layout.problems);
    }
}
