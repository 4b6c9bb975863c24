//! The hooks of the handlers: one file for each type of hook.

/// Passes the system calls with attachable functions, one by one, to the `pair!` macro of the file that uses it.
macro_rules! pairs {
    (
        native { $(
            $native:ident $native_program:literal: $native_call:ident, $_native:literal,
            $_numbers:tt, |$($a:ident),*| $native_enter:ident $native_values:tt;
        )* }
        of_32_bit { $(
            $compat:ident $compat_program:literal: $compat_call:ident, $_compat:literal,
            |$($c:ident),*| $compat_enter:ident $compat_values:tt;
        )* }
        io_uring $_io_uring:tt
    ) => {
        $(pair!(
            native, $native, $native_program, $native_call, [$($a)*], $native_enter, $native_values
        );)*
        $(#[cfg(not(bpf_target_arch = "aarch64"))]
        pair!(
            of_32_bit, $compat, $compat_program, $compat_call, [$($c)*], $compat_enter,
            $compat_values
        );)*
    };
}

mod arguments;
mod cast;
mod directory;
mod exec;
mod function;
mod io_uring;
mod kprobe;
mod lock;
mod tracepoint;
