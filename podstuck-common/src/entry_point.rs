//! The ways by which a deletion, an unmount or a rename enters the kernel, one row each. The probes'
//! programs are made from this table, and user space attaches them by it.

/// Gives the table to the macro of this name.
///
/// A row of a system call has: its constant in [`EntryPointId`], the end of its programs' names, its
/// call as in [`crate::record::call`], what the kernel's function and tracepoints are called, its
/// numbers on x86-64 and arm64, its first arguments, and what the probes note of them: by which function
/// of their `enter`, with which values.
#[macro_export]
macro_rules! entry_points {
    ($with:ident) => {
        $with! {
            native {
                UNLINKAT "unlinkat": UNLINKAT, "unlinkat", [263, 35],
                    |dirfd, path, flags| deletion(dirfd as i32, path, flags as u32);
                UMOUNT2 "umount2": UMOUNT2, "umount", [166, 39],
                    |path, flags| deletion(AT_FDCWD, path, flags as u32);
                UNLINK "unlink": UNLINK, "unlink", [87, none],
                    |path| deletion(AT_FDCWD, path, 0);
                RMDIR "rmdir": RMDIR, "rmdir", [84, none],
                    |path| deletion(AT_FDCWD, path, 0);
                RENAME "rename": RENAME, "rename", [82, none],
                    |from, to| rename((AT_FDCWD, from), (AT_FDCWD, to));
                RENAMEAT "renameat": RENAME, "renameat", [264, 38],
                    |from_dir, from, to_dir, to|
                    rename((from_dir as i32, from), (to_dir as i32, to));
                RENAMEAT2 "renameat2": RENAME, "renameat2", [316, 276],
                    |from_dir, from, to_dir, to|
                    rename((from_dir as i32, from), (to_dir as i32, to));
            }
            of_32_bit {
                UNLINKAT_32 "unlinkat_32": UNLINKAT, "unlinkat",
                    |dirfd, path, flags| deletion(dirfd as i32, path, flags as u32);
                UMOUNT2_32 "umount2_32": UMOUNT2, "umount",
                    |path, flags| deletion(AT_FDCWD, path, flags as u32);
                // `umount(2)` without flags, which only this interface still has.
                UMOUNT_32 "umount_32": UMOUNT2, "oldumount",
                    |path| deletion(AT_FDCWD, path, 0);
                UNLINK_32 "unlink_32": UNLINK, "unlink",
                    |path| deletion(AT_FDCWD, path, 0);
                RMDIR_32 "rmdir_32": RMDIR, "rmdir",
                    |path| deletion(AT_FDCWD, path, 0);
            }
            io_uring {
                IO_UNLINKAT "io_unlinkat": UNLINKAT, "io_unlinkat";
            }
        }
    };
}

/// The callers that enter by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// Programs of the machine's own width, by a system call.
    Native,
    /// Programs that use the 32-bit system calls of an x86-64 kernel. arm64 kernels let their like in
    /// by the native functions.
    Of32Bit,
    /// Requests of io_uring, which are no system calls.
    IoUring,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPoint {
    /// What the names of its programs end with.
    pub program: &'static str,
    /// The callers that enter by it.
    pub interface: Interface,
    /// As in [`crate::record::call`]; a flag may make [`crate::record::call::UNLINKAT_DIR`] of it.
    pub call: u8,
    /// The kernel's function that programs can be on.
    pub function: &'static str,
    /// What the names of its tracepoints end with. Only native system calls have any.
    pub tracepoint: Option<&'static str>,
    /// Its number; `None` where this architecture has no such call, and for what is not native.
    pub number: Option<u32>,
}

/// Which entry point: its row in [`ENTRY_POINTS`].
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryPointId(u16);

/// Whether the kernel that runs the probes is one for arm64. In the probes themselves aya-build says
/// so, because they are compiled for the same machine everywhere.
pub const ON_ARM64: bool = cfg!(any(target_arch = "aarch64", bpf_target_arch = "aarch64"));

/// Of two numbers, the one that applies to this architecture.
macro_rules! number {
    ([$x86_64:tt, $arm64:tt]) => {
        if ON_ARM64 { number!($arm64) } else { number!($x86_64) }
    };
    (none) => {
        None
    };
    ($number:literal) => {
        Some($number)
    };
}

macro_rules! table {
    (
        native { $(
            $native:ident $native_program:literal: $native_call:ident, $native_name:literal,
            $numbers:tt, |$($_a:ident),*| $_native:ident($($_b:expr),*);
        )* }
        of_32_bit { $(
            $compat:ident $compat_program:literal: $compat_call:ident, $compat_name:literal,
            |$($_c:ident),*| $_compat:ident($($_d:expr),*);
        )* }
        io_uring { $($ring:ident $ring_program:literal: $ring_call:ident, $ring_name:literal;)* }
    ) => {
        /// The table. The order is that in which they are attached and listed.
        pub const ENTRY_POINTS: &[EntryPoint] = &[
            $(EntryPoint {
                program: $native_program,
                interface: Interface::Native,
                call: crate::record::call::$native_call,
                // `__SYSCALL_DEFINEx` of each architecture
                function: if ON_ARM64 {
                    concat!("__arm64_sys_", $native_name)
                } else {
                    concat!("__x64_sys_", $native_name)
                },
                tracepoint: Some($native_name),
                number: number!($numbers),
            },)*
            $(EntryPoint {
                program: $compat_program,
                interface: Interface::Of32Bit,
                call: crate::record::call::$compat_call,
                function: concat!("__ia32_sys_", $compat_name),
                tracepoint: None,
                number: None,
            },)*
            $(EntryPoint {
                program: $ring_program,
                interface: Interface::IoUring,
                call: crate::record::call::$ring_call,
                function: $ring_name,
                tracepoint: None,
                number: None,
            },)*
        ];

        #[expect(
            non_camel_case_types,
            clippy::upper_case_acronyms,
            reason = "named as the constants that are made of them"
        )]
        enum Row { $($native,)* $($compat,)* $($ring,)* }

        impl EntryPointId {
            $(#[doc = concat!("`", $native_program, "`")]
            pub const $native: Self = Self(Row::$native as u16);)*
            $(#[doc = concat!("`", $compat_program, "`")]
            pub const $compat: Self = Self(Row::$compat as u16);)*
            $(#[doc = concat!("`", $ring_program, "`")]
            pub const $ring: Self = Self(Row::$ring as u16);)*

            /// That of the native system call of this number.
            #[inline(always)]
            pub const fn of_system_call(number: u32) -> Option<Self> {
                // Numbers in code and not the table: the probes would have to carry it along.
                $(if matches!(number!($numbers), Some(n) if n == number) {
                    return Some(Self::$native);
                })*
                None
            }
        }
    };
}

entry_points!(table);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_call_is_found_by_its_number_and_nothing_else_is() {
        for (row, entry_point) in ENTRY_POINTS.iter().enumerate() {
            let Some(number) = entry_point.number else { continue };
            assert_eq!(EntryPointId::of_system_call(number), Some(EntryPointId(row as u16)));
        }
        assert_eq!(EntryPointId::of_system_call(u32::MAX), None);
    }

    #[test]
    fn no_two_have_programs_of_one_name() {
        for (row, one) in ENTRY_POINTS.iter().enumerate() {
            assert!(ENTRY_POINTS[..row].iter().all(|other| other.program != one.program));
        }
    }

    #[test]
    fn a_constant_is_the_row_of_its_name() {
        let program = |id: EntryPointId| ENTRY_POINTS[usize::from(id.0)].program;
        assert_eq!(program(EntryPointId::UNLINKAT), "unlinkat");
        assert_eq!(program(EntryPointId::UMOUNT_32), "umount_32");
        assert_eq!(program(EntryPointId::IO_UNLINKAT), "io_unlinkat");
    }
}
