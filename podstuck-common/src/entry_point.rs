//! The entry points of deletions, unmounts and renames into the kernel, one row each. The probes' programs are
//! generated from this table, and user space attaches them by it.

/// Passes the table to the macro of this name.
///
/// A row of a system call contains: its constant in [`EntryPointId`], the suffix of its programs' names, its call as
/// in [`crate::record::call`], the name of the kernel's function and tracepoints, its numbers on x86-64 and arm64,
/// its first arguments, and what the probes store of them: a function of `enter` and its arguments.
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
                // `umount(2)` without flags, which exists only in this interface.
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

/// The interface through which callers enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// System calls of 64-bit programs.
    Native,
    /// The 32-bit system calls of an x86-64 kernel. arm64 kernels use the native functions for 32-bit programs.
    Of32Bit,
    /// Requests of io_uring, which are not system calls.
    IoUring,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPoint {
    /// The suffix of its programs' names.
    pub program: &'static str,
    /// The interface through which its callers enter.
    pub interface: Interface,
    /// As in [`crate::record::call`]. A flag may change it to [`crate::record::call::UNLINKAT_DIR`].
    pub call: u8,
    /// The kernel's function to which programs can be attached.
    pub function: &'static str,
    /// The suffix of its tracepoints' names. Only native system calls have tracepoints.
    pub tracepoint: Option<&'static str>,
    /// The system call's number; `None` if this architecture does not have it, and for entry points that are not
    /// native.
    pub number: Option<u32>,
}

/// Identifies an entry point: its row in [`ENTRY_POINTS`].
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryPointId(u16);

/// Whether the kernel that runs the probes is for arm64. In the probes, aya-build sets this, because they are always
/// compiled for the same target.
pub const ON_ARM64: bool = cfg!(any(target_arch = "aarch64", bpf_target_arch = "aarch64"));

/// The number for this architecture.
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
        /// The table, in the order in which the entry points are attached and listed.
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

            /// The entry point of the native system call with this number.
            #[inline(always)]
            pub const fn of_system_call(number: u32) -> Option<Self> {
                // The numbers are in code, because the probes would have to contain the table.
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
