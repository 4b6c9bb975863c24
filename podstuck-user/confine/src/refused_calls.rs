//! System calls that a thread never needs, refused with EPERM from the thread's start (seccomp). Processes that it
//! starts inherit that. The list names the refused calls, so that a new version of a library may use a call that is
//! in no list.

use std::{cell::RefCell, collections::BTreeMap};

use anyhow::{Context, Result};
use nix::libc;
use podstuck_common::root::SHOW_BIT;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// The purpose of a group of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Change the machine or other processes, or get around these limits: mounts, modules, clocks, `ptrace`, keys,
    /// io_uring (which makes calls that no filter sees).
    Machine,
    /// Load programs into the kernel and read their maps.
    Bpf,
    /// Enter another namespace or root directory.
    Enter,
    /// Create, remove, rename and change files by name.
    Change,
    /// Open files for writing, where the call's own arguments show it.
    OpenToWrite,
    /// Open files by arguments that a filter cannot see.
    OpenUnseen,
}

/// `open_tree_attr(2)` of Linux 6.15, the same on all architectures, which `libc` does not name.
const SYS_OPEN_TREE_ATTR: i64 = 467;

const MACHINE: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
    libc::SYS_syslog,
    libc::SYS_unshare,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Stands for a mount's descriptor in `open_by_handle_at(2)`: the kernel's own file system of namespaces
/// (`linux/fcntl.h`, Linux 6.18).
pub const FD_NSFS_ROOT: libc::c_int = -10003;

const BPF: &[i64] = &[libc::SYS_bpf, libc::SYS_perf_event_open];

const ENTER: &[i64] = &[libc::SYS_setns, libc::SYS_chroot];

/// The same number on all architectures; the C library's list does not have it on each.
const FCHMODAT2: i64 = 452;

const CHANGE: &[i64] = &[
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// Calls that open a file, each with the number of the argument that holds its flags.
const OPENING: &[(i64, u8)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

thread_local! {
    /// The groups that this thread is refused already; a forked process continues with its parent's. A filter for all of
    /// them takes the kernel half a millisecond, several times what most helpers need for their answer.
    static REFUSED: RefCell<Vec<Group>> = const { RefCell::new(Vec::new()) };
}

/// Refuses these calls to this thread, and to all that it starts from now on.
///
/// # Errors
/// Fails on kernels without seccomp.
pub(crate) fn refuse(groups: &[Group]) -> Result<()> {
    let mut more = groups.to_vec();
    REFUSED.with_borrow(|refused| more.retain(|group| !refused.contains(group)));
    if more.is_empty() {
        return Ok(());
    }
    install(&more)?;
    REFUSED.with_borrow_mut(|refused| refused.append(&mut more));
    Ok(())
}

fn install(groups: &[Group]) -> Result<()> {
    let mut rules = Rules::new();
    for group in groups {
        match group {
            Group::Machine => {
                always(&mut rules, MACHINE);
                rules.insert(libc::SYS_open_by_handle_at, vec![but_namespaces()?]);
            }
            Group::Bpf => always(&mut rules, BPF),
            Group::Enter => always(&mut rules, ENTER),
            Group::Change => {
                always(&mut rules, CHANGE);
                rules.insert(libc::SYS_unlinkat, vec![but_to_show()?]);
            }
            Group::OpenUnseen => always(&mut rules, &[libc::SYS_openat2]),
            Group::OpenToWrite => to_write(&mut rules)?,
        }
    }
    let architecture = std::env::consts::ARCH.try_into().context("seccomp")?;
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture);
    let program: BpfProgram = filter.and_then(TryInto::try_into).context("seccomp")?;
    apply_filter(&program).context("seccomp")
}

fn always(rules: &mut Rules, calls: &[i64]) {
    // A call without rules is refused with any arguments.
    rules.extend(calls.iter().map(|call| (*call, Vec::new())));
}

/// Lets through the call that shows a directory to the probes, which the kernel itself refuses.
fn but_to_show() -> Result<SeccompRule> {
    let compare = SeccompCmpOp::MaskedEq(u64::from(SHOW_BIT));
    let condition = SeccompCondition::new(2, SeccompCmpArgLen::Dword, compare, 0)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// `open_by_handle_at` opens a file in any directory, with `CAP_DAC_READ_SEARCH`. A namespace is not a file of a
/// directory, and opening it takes `CAP_SYS_ADMIN`.
fn but_namespaces() -> Result<SeccompRule> {
    let namespaces = u64::from(FD_NSFS_ROOT.cast_unsigned());
    let condition =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, namespaces)?;
    Ok(SeccompRule::new(vec![condition])?)
}

fn to_write(rules: &mut Rules) -> Result<()> {
    let masked = |argument, mask: libc::c_int, value: libc::c_int| -> Result<SeccompRule> {
        let (mask, value) = (u64::from(mask.unsigned_abs()), u64::from(value.unsigned_abs()));
        let compare = SeccompCmpOp::MaskedEq(mask);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)?;
        Ok(SeccompRule::new(vec![condition])?)
    };
    for (call, flags) in OPENING {
        let of_call = [
            masked(*flags, libc::O_ACCMODE, libc::O_WRONLY)?,
            masked(*flags, libc::O_ACCMODE, libc::O_RDWR)?,
            masked(*flags, libc::O_CREAT, libc::O_CREAT)?,
            masked(*flags, libc::O_TRUNC, libc::O_TRUNC)?,
        ];
        rules.insert(*call, of_call.into());
    }
    #[cfg(target_arch = "x86_64")]
    always(rules, &[libc::SYS_creat]);
    Ok(())
}
