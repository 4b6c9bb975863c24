//! Which entry point is seen by which hooks: the forms of hooks, and what they are called.

use podstuck_common::entry_point::{ENTRY_POINTS, EntryPoint, Interface, ON_ARM64};

use podstuck_model::call::Call;

/// A form of hook. What is counted does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `fentry` and `fexit` on the function through which a call enters the kernel. Costs other
    /// calls nothing.
    Function,
    /// A kprobe and a kretprobe on the same functions. They cost other calls nothing either, and the kernel tells few
    /// returns at a time: ten, or twice as many as there are processors.
    Kprobe,
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

/// Both halves of an entry point's probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair(&'static EntryPoint);

/// A function to which the kernel hands the directory that it has resolved for a deletion. Kernels with
/// `CONFIG_SECURITY_PATH` have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryHook {
    /// Of a file.
    Unlink,
    /// Of a directory.
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

    /// Name of the program. Tracepoints do not tell it.
    pub fn program(self, form: Form) -> String {
        format!("{}_{}", form.name(), self.function())
    }

    /// What the hook is called by tracers.
    pub fn hook(self, form: Form) -> String {
        format!("{}:{}", form.name(), self.function())
    }
}

impl Form {
    /// All, the best one first.
    pub const ALL: [Self; 3] = [Self::Function, Self::Kprobe, Self::Tracepoint];

    /// As `--backend` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Function => "fentry",
            Self::Kprobe => "kprobe",
            Self::Tracepoint => "tracepoint",
        }
    }
}

/// A program that those at the ends of system calls' functions go on with.
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

/// The calls that are counted, of programs of the machine's own width. arm64 has no `unlink` and no `rmdir`.
pub fn native() -> Vec<Pair> {
    pairs(|pair| pair.0.number.is_some() && pair.call().is_some())
}

/// The renames, which may take a tree away before it is deleted. arm64 has no `rename`.
pub fn renames() -> Vec<Pair> {
    pairs(|pair| pair.0.number.is_some() && pair.call().is_none())
}

/// The functions that only 32-bit programs enter: those of an x86-64 kernel's interface for them; and on arm64,
/// where they enter by the same functions as others, those of calls that others do not have.
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
    /// The call whose probe it is; none for a rename, which is not counted, and for io_uring, which makes
    /// no call.
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
            // One for all.
            (Form::Tracepoint, Side::Exit) => "exit".to_owned(),
        }
    }

    /// What its exit goes on with.
    pub fn rest(&self, form: Form) -> Option<Rest> {
        let [of_function, of_kprobe] = Rest::ALL;
        match form {
            Form::Function => Some(of_function).filter(|_| self.is_system_call()),
            Form::Kprobe => Some(of_kprobe),
            Form::Tracepoint => None,
        }
    }

    /// Whether it is a system call's, and not io_uring's.
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

    /// What the hook is called by tracers.
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
        // What an architecture does not have is nowhere.
        let of_x86 = ["unlinkat_32", "umount2_32", "umount_32", "unlink_32", "rmdir_32"];
        let elsewhere: &[&str] = if ON_ARM64 { &of_x86 } else { &[] };
        assert_eq!(missing, elsewhere, "{:?}", names.collect::<Vec<_>>());
    }
}
