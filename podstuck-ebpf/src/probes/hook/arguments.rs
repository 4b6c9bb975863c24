//! The arguments of a system call at the start of its function, whose own argument is a pointer to the saved
//! registers of the caller.

pub(super) use aya_ebpf::bindings::bpf_user_pt_regs_t as Registers;

/// The first four arguments of a native call (`SC_X86_64_REGS_TO_ARGS` of arch/x86/include/asm/syscall_wrapper.h,
/// `SC_ARM64_REGS_TO_ARGS` of its counterpart).
#[inline(always)]
pub(super) fn native(saved: &Registers) -> [u64; 4] {
    #[cfg(not(bpf_target_arch = "aarch64"))]
    return [saved.rdi, saved.rsi, saved.rdx, saved.r10];
    #[cfg(bpf_target_arch = "aarch64")]
    [saved.regs[0], saved.regs[1], saved.regs[2], saved.regs[3]]
}

/// The first three arguments of a 32-bit call (`SC_IA32_REGS_TO_ARGS`). Only the lower halves are the caller's.
#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn of_32_bit(saved: &Registers) -> [u64; 3] {
    [saved.rbx, saved.rcx, saved.rdx].map(|word| word & 0xffff_ffff)
}
