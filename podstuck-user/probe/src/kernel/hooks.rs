//! Which hooks see which entry point: the forms of hooks, and their names.

use podstuck_common::entry_point::{ENTRY_POINTS, EntryPoint, Interface, ON_ARM64};

use podstuck_model::call::Call;

/// A form of hook. The counts do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `fentry` and `fexit` on the function through which a call enters the kernel. Costs other
    /// calls nothing.
    Function,
    /// A kprobe and a kretprobe on the same functions. They cost other calls nothing either, and the kernel follows
    /// few returns at a time: ten, or twice as many as there are processors.
    Kprobe,
    /// Syscall tracepoints. While one is enabled, every system call of the machine takes the slow
    /// path through the kernel's entry code.
    Tracepoint,
}

/// One half of a pair of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Entry of the call.
    Enter,
    /// Return of the call.
    Exit,
}

/// Both halves of an entry point's probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair(&'static EntryPoint);

/// A function to which the kernel hands the directory that it has resolved for a deletion. Kernels with
/// `CONFIG_SECURITY_PATH` have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryHook {
    /// Deletion of a file.
    Unlink,
    /// Deletion of a directory.
    Rmdir,
}

impl DirectoryHook {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Unlink, Self::Rmdir];

    /// The kernel's function.
    pub const fn function(self) -> &'static str {
        match self {
            Self::Unlink => "security_path_unlink",
            Self::Rmdir => "security_path_rmdir",
        }
    }

    /// Name of the program. Tracepoints have none: they do not report the directory.
    pub fn program(self, form: Form) -> String {
        format!("{}_{}", form.name(), self.function())
    }

    /// The name that tracers give the hook.
    pub fn hook(self, form: Form) -> String {
        format!("{}:{}", form.name(), self.function())
    }
}

impl Form {
    /// All, the best one first.
    pub const ALL: [Self; 3] = [Self::Function, Self::Kprobe, Self::Tracepoint];

    /// The name that `--backend` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Function => "fentry",
            Self::Kprobe => "kprobe",
            Self::Tracepoint => "tracepoint",
        }
    }
}

/// The program that the programs at the ends of system calls' functions continue with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Its name.
    pub program: &'static str,
    /// The table that it is entered into.
    pub table: &'static str,
}

impl Rest {
    /// All of them.
    pub const ALL: [Self; 2] = [
        Self { program: "after_return", table: "AFTER_RETURN" },
        Self { program: "after_kretprobe", table: "AFTER_KRETPROBE" },
    ];
}

fn pairs(wanted: impl Fn(&Pair) -> bool) -> Vec<Pair> {
    ENTRY_POINTS.iter().map(Pair).filter(wanted).collect()
}

/// The counted calls of programs of the machine's native width. arm64 has no `unlink` and no `rmdir`.
pub fn native() -> Vec<Pair> {
    pairs(|pair| pair.0.number.is_some() && pair.call().is_some())
}

/// The renames, which may move a tree away before it is deleted. arm64 has no `rename`.
pub fn renames() -> Vec<Pair> {
    pairs(|pair| pair.0.number.is_some() && pair.call().is_none())
}

/// The functions that only 32-bit programs enter: on x86-64 those of the kernel's interface for them; on arm64, where
/// most functions are shared, those of calls that 64-bit programs do not have.
pub fn of_32_bit() -> Vec<Pair> {
    pairs(|pair| match pair.0.interface {
        Interface::Native => ON_ARM64 && pair.0.number.is_none(),
        Interface::Of32Bit => !ON_ARM64,
        Interface::IoUring => false,
    })
}

/// Deletions by io_uring. `io_unlinkat` is called through a table (`io_issue_defs` in
/// io_uring/opdef.c), so it cannot be inlined.
pub fn io_uring() -> Vec<Pair> {
    pairs(|pair| pair.0.interface == Interface::IoUring)
}

impl Pair {
    /// The call of this probe; `None` for a rename, which is not counted, and for io_uring, which makes no call.
    pub fn call(&self) -> Option<Call> {
        Call::from_code(self.0.call).filter(|_| self.is_system_call())
    }

    /// Name of a program.
    pub fn program(&self, form: Form, side: Side) -> String {
        match (form, side) {
            (Form::Function, Side::Enter) => format!("fentry_{}", self.0.program),
            (Form::Function, Side::Exit) => format!("fexit_{}", self.0.program),
            (Form::Tracepoint, Side::Enter) => format!("enter_{}", self.0.program),
            (Form::Kprobe, Side::Enter) => format!("kprobe_{}", self.0.program),
            (Form::Kprobe, Side::Exit) => format!("kretprobe_{}", self.0.program),
            // One program for all calls.
            (Form::Tracepoint, Side::Exit) => "exit".to_owned(),
        }
    }

    /// The program that its exit continues with.
    pub fn rest(&self, form: Form) -> Option<Rest> {
        let [of_function, of_kprobe] = Rest::ALL;
        match form {
            Form::Function => Some(of_function).filter(|_| self.is_system_call()),
            Form::Kprobe => Some(of_kprobe),
            Form::Tracepoint => None,
        }
    }

    /// Whether this is a system call's entry point, and not io_uring's.
    pub fn is_system_call(&self) -> bool {
        self.0.interface != Interface::IoUring
    }

    /// The function that a program of [`Form::Function`] or [`Form::Kprobe`] is on.
    pub const fn function(&self) -> &'static str {
        self.0.function
    }

    /// The event, of category `syscalls`, that a program of [`Form::Tracepoint`] is on.
    pub fn event(&self, side: Side) -> Option<String> {
        let side = match side {
            Side::Enter => "enter",
            Side::Exit => "exit",
        };
        self.0.tracepoint.map(|name| format!("sys_{side}_{name}"))
    }

    /// The name that tracers give the hook.
    pub fn hook(&self, form: Form, side: Side) -> String {
        match (form, side) {
            (Form::Function, Side::Enter) => format!("fentry:{}", self.function()),
            (Form::Function, Side::Exit) => format!("fexit:{}", self.function()),
            (Form::Kprobe, Side::Enter) => format!("kprobe:{}", self.function()),
            (Form::Kprobe, Side::Exit) => format!("kretprobe:{}", self.function()),
            (Form::Tracepoint, side) => {
                format!("tracepoint:syscalls:{}", self.event(side).unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::*;

    #[test]
    fn the_table_has_the_numbers_that_the_c_library_has() {
        let numbers: Vec<(&str, libc::c_long)> = vec![
            ("unlinkat", libc::SYS_unlinkat),
            ("umount2", libc::SYS_umount2),
            #[cfg(target_arch = "x86_64")]
            ("unlink", libc::SYS_unlink),
            #[cfg(target_arch = "x86_64")]
            ("rmdir", libc::SYS_rmdir),
            #[cfg(target_arch = "x86_64")]
            ("rename", libc::SYS_rename),
            ("renameat", libc::SYS_renameat),
            ("renameat2", libc::SYS_renameat2),
        ];
        let table: Vec<(&str, libc::c_long)> = ENTRY_POINTS
            .iter()
            .filter_map(|row| Some((row.program, libc::c_long::from(row.number?))))
            .collect();
        assert_eq!(table, numbers);
    }

    #[test]
    fn every_entry_point_belongs_to_one_group() {
        let groups = [native(), renames(), of_32_bit(), io_uring()].concat();
        let names = groups.iter().map(|pair| pair.0.program);
        let missing: Vec<&str> = ENTRY_POINTS
            .iter()
            .filter(|row| groups.iter().filter(|pair| pair.0 == *row).count() != 1)
            .map(|row| row.program)
            .collect();
        // Entry points that an architecture lacks are in no group.
        let of_x86 = ["unlinkat_32", "umount2_32", "umount_32", "unlink_32", "rmdir_32"];
        let elsewhere: &[&str] = if ON_ARM64 { &of_x86 } else { &[] };
        assert_eq!(missing, elsewhere, "{:?}", names.collect::<Vec<_>>());
    }
}
