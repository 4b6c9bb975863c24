//! Which call is seen by which hooks: the forms of hooks, and what they are called.

use crate::model::call::Call;

/// A form of hook. What is counted does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `fentry` and `fexit` on the function through which a call enters the kernel. Costs other
    /// calls nothing.
    Function,
    /// Syscall tracepoints. While one is enabled, every system call of the machine takes the slow
    /// path through the kernel's entry code.
    Tracepoint,
}

/// One half of a pair of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The call is entered.
    Enter,
    /// The call returns.
    Exit,
}

/// Both halves of a call's probe.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair {
    /// The call whose probe it is; none for a rename, which is not counted, and for io_uring, which makes
    /// no call.
    pub call: Option<Call>,
    /// End of the programs' names.
    program: &'static str,
    /// End of the tracepoint's name; none where there is no syscall tracepoint: the 32-bit interface
    /// and io_uring.
    tracepoint: Option<&'static str>,
    /// The function.
    function: &'static str,
}

/// Puts the architecture's prefix before a system call's function (`__SYSCALL_DEFINEx`).
macro_rules! function {
    ($name:literal) => {
        if cfg!(target_arch = "aarch64") {
            concat!("__arm64_sys_", $name)
        } else {
            concat!("__x64_sys_", $name)
        }
    };
}

const fn pair(
    call: Option<Call>,
    program: &'static str,
    tracepoint: &'static str,
    function: &'static str,
) -> Pair {
    Pair { call, program, tracepoint: Some(tracepoint), function }
}

/// The calls of programs of the machine's own width. `umount2` is called `umount` in the kernel.
pub const NATIVE: [Pair; 4] = [
    pair(Some(Call::Unlinkat), "unlinkat", "unlinkat", function!("unlinkat")),
    pair(Some(Call::Umount2), "umount2", "umount", function!("umount")),
    pair(Some(Call::Unlink), "unlink", "unlink", function!("unlink")),
    pair(Some(Call::Rmdir), "rmdir", "rmdir", function!("rmdir")),
];

/// The renames, which may take a tree away before it is deleted. arm64 has no `rename`.
pub const RENAMES: &[Pair] = &[
    #[cfg(not(target_arch = "aarch64"))]
    pair(None, "rename", "rename", function!("rename")),
    pair(None, "renameat", "renameat", function!("renameat")),
    pair(None, "renameat2", "renameat2", function!("renameat2")),
];

const fn pair_32(call: Call, program: &'static str, function: &'static str) -> Pair {
    Pair { call: Some(call), program, tracepoint: None, function }
}

/// The calls of the 32-bit interface of an x86-64 kernel. arm64 kernels let these callers in by the
/// functions of [`NATIVE`].
pub const OF_32_BIT: [Pair; 5] = [
    pair_32(Call::Unlinkat, "unlinkat_32", "__ia32_sys_unlinkat"),
    pair_32(Call::Umount2, "umount2_32", "__ia32_sys_umount"),
    pair_32(Call::Umount2, "umount_32", "__ia32_sys_oldumount"),
    pair_32(Call::Unlink, "unlink_32", "__ia32_sys_unlink"),
    pair_32(Call::Rmdir, "rmdir_32", "__ia32_sys_rmdir"),
];

/// A deletion by io_uring: a function, and no system call. `io_unlinkat` is called through a table
/// (`io_issue_defs` in io_uring/opdef.c), so it cannot be inlined.
pub const IO_URING: Pair =
    Pair { call: None, program: "io_unlinkat", tracepoint: None, function: "io_unlinkat" };

/// The program that those at the ends of system calls' functions go on with.
pub const AFTER_RETURN: &str = "after_return";

impl Pair {
    /// Name of a program.
    pub fn program(&self, form: Form, side: Side) -> String {
        match (form, side) {
            (Form::Function, Side::Enter) => format!("fentry_{}", self.program),
            (Form::Function, Side::Exit) => format!("fexit_{}", self.program),
            // The arguments that matter are the same.
            (Form::Tracepoint, Side::Enter) if self.program == "renameat2" => {
                "enter_renameat".to_owned()
            }
            (Form::Tracepoint, Side::Enter) => format!("enter_{}", self.program),
            // One for all.
            (Form::Tracepoint, Side::Exit) => "exit".to_owned(),
        }
    }

    /// Whether it is a system call's, and not io_uring's.
    pub fn is_system_call(&self) -> bool {
        *self != IO_URING
    }

    /// The function that a program of [`Form::Function`] is on.
    pub const fn function(&self) -> &'static str {
        self.function
    }

    /// The event, of category `syscalls`, that a program of [`Form::Tracepoint`] is on.
    pub fn event(&self, side: Side) -> Option<String> {
        let side = match side {
            Side::Enter => "enter",
            Side::Exit => "exit",
        };
        self.tracepoint.map(|name| format!("sys_{side}_{name}"))
    }

    /// What the hook is called by tracers.
    pub fn hook(&self, form: Form, side: Side) -> String {
        match (form, side) {
            (Form::Function, Side::Enter) => format!("fentry:{}", self.function),
            (Form::Function, Side::Exit) => format!("fexit:{}", self.function),
            (Form::Tracepoint, side) => {
                format!("tracepoint:syscalls:{}", self.event(side).unwrap_or_default())
            }
        }
    }
}
