//! A removal that waits for a lock of the kernel. The process that holds it writes to the same file from memory whose page
//! faults are not resolved (userfaultfd(2)).

use std::{
    fs::{self, File},
    os::fd::{AsRawFd, RawFd},
    ptr, thread,
};

use nix::{
    libc,
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, fork},
};
use podstuck_tests::{
    UID, empty_dir, obey, of_type, requires, root_and_btf, skip, slowdown, watch,
};

const PAGE: usize = 4096;
/// `UFFDIO_API` and `UFFDIO_REGISTER` of include/uapi/linux/userfaultfd.h
const API: libc::Ioctl = 0xc018_aa3f;
const REGISTER: libc::Ioctl = 0xc020_aa00;
/// `UFFD_API`
const VERSION: u64 = 0xaa;
/// `UFFDIO_REGISTER_MODE_MISSING`
const MISSING: u64 = 1;

/// A process that writes a page to a file and does not return from that.
struct Writer(Pid);

impl Writer {
    fn start(file: &File) -> Self {
        // SAFETY: the child makes system calls only, and does not return.
        match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => Self(child),
            // SAFETY: this process ends after the call.
            ForkResult::Child => unsafe {
                write_missing_page(file.as_raw_fd());
                libc::_exit(1)
            },
        }
    }

    fn waits(&self) -> bool {
        fs::read_to_string(format!("/proc/{}/wchan", self.0)).unwrap() == "handle_userfault"
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}

/// Returns only if something fails.
///
/// # Safety
/// The caller is a process that ends then.
unsafe fn write_missing_page(file: RawFd) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping that only the kernel uses; the structures have as many words as the calls read and write.
    unsafe {
        let page = libc::mmap(ptr::null_mut(), PAGE, access, flags, -1, 0);
        let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as RawFd;
        let mut api = [VERSION, 0, 0];
        let mut range = [page as u64, PAGE as u64, MISSING, 0];
        if libc::ioctl(faults, API, api.as_mut_ptr()) == 0
            && libc::ioctl(faults, REGISTER, range.as_mut_ptr()) == 0
        {
            libc::write(file, page, PAGE);
        }
    }
}

/// The kernel keeps the lock that a task sleeps for since 6.16, and that of a file or directory since 6.17.
fn keeps_locks() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(17))
}

#[test]
fn a_removal_that_waits_for_a_lock_continues_when_its_holder_is_ended() {
    requires!(root_and_btf());
    if !keeps_locks() {
        return skip("Linux before 6.17 does not keep the lock that a task sleeps for");
    }
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = empty_dir(root.path()).join("file");
    let writer = Writer::start(&File::create(&path).unwrap());
    while !writer.waits() {
        thread::yield_now();
    }
    let after = format!("{}ms", 200 * slowdown());
    let root = root.path().to_str().unwrap();
    let mut watching = watch(&["--kubelet-root", root, "--pod-uid", UID, "--hung-after", &after]);
    let removal = thread::spawn(move || fs::remove_file(&path).unwrap());
    let found = watching.wait_for("finding", |line| {
        let is_own = line["type"] == "finding" && line["id"] == "kernel-lock-held";
        is_own && line["certainty"] == "firm"
    });
    assert!(found["held_by"].as_str().unwrap().ends_with(&format!("(pid {})", writer.0)));
    let evidence = found["evidence"].to_string();
    assert!(evidence.contains("waits for a rw_semaphore of the kernel, held by"), "{found:#}");
    assert!(evidence.contains("handle_userfault"), "{found:#}");
    obey(found["remedies"][0]["command"].as_str().unwrap());
    removal.join().unwrap();
    watching.wait_for("end", |line| line["state"] == "cleared");
    let (lines, _) = watching.stop();
    let findings = of_type(&lines, "finding");
    assert!(findings.iter().all(|found| found["id"] == "kernel-lock-held"), "{findings:#?}");
}
