//! Threads that sleep for a lock of the kernel, with the thread that holds it, as the kernel's iterator over all tasks
//! reports them.

/// A thread that sleeps for a lock.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWait {
    /// The waiting thread, as `pid_tgid`.
    pub thread: u64,
    /// The thread that has taken the lock, as `pid_tgid`; 0 if the lock does not name it.
    pub holder: u64,
    /// The type of the lock, as in [`kind`].
    pub kind: u32,
    /// 1 if readers hold it, of which the lock names the last one that has taken it. That one may have released it.
    pub shared: u32,
}

/// Types of locks: the lower two bits of `task_struct.blocker` (include/linux/hung_task.h).
pub mod kind {
    /// `struct mutex`
    pub const MUTEX: u32 = 0;
    /// `struct semaphore`
    pub const SEMAPHORE: u32 = 1;
    /// `struct rw_semaphore`, waited for by a reader
    pub const RWSEM_READER: u32 = 2;
    /// `struct rw_semaphore`, waited for by a writer
    pub const RWSEM_WRITER: u32 = 3;
    /// The bits of the type.
    pub const MASK: u64 = 3;
}

/// Bits of `mutex.owner` and `rw_semaphore.owner` that are not part of the task's address (kernel/locking/mutex.h and
/// rwsem.c).
pub const OWNER_FLAGS: u64 = 7;
/// Bit of `rw_semaphore.owner`: readers hold the lock.
pub const READER_OWNED: u64 = 1;

impl LockWait {
    /// Size of a record in bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// A record as the iterator writes it.
    pub fn parse(record: &[u8; Self::SIZE]) -> Self {
        let word = |at: usize| core::array::from_fn(|byte| record[at + byte]);
        let half = |at: usize| core::array::from_fn(|byte| record[at + byte]);
        Self {
            thread: u64::from_ne_bytes(word(0)),
            holder: u64::from_ne_bytes(word(8)),
            kind: u32::from_ne_bytes(half(16)),
            shared: u32::from_ne_bytes(half(20)),
        }
    }
}

const _: () = assert!(LockWait::SIZE == 24);
