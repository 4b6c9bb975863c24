//! The privileges of a process, and the user that started it, where the kernel shows them.

use std::{fs, path::Path};

/// Its bit in the sets of `/proc/PID/status` (include/uapi/linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
/// `AT_UID`, `AT_EUID`, `AT_GID` and `AT_EGID` (include/uapi/linux/auxvec.h).
const IDS: std::ops::RangeInclusive<u64> = 11..=14;

/// Whether a process may be the node's root: all its user and group ids are 0, it has `CAP_SYS_ADMIN`, and its user
/// namespace contains all user ids of the node, as only root can create one. Takes no lock of the process.
pub fn may_be_root(process: &Path) -> bool {
    is_maybe_root(process).unwrap_or(false)
}

/// As [`may_be_root`]; `None` when that could not be read.
pub fn is_maybe_root(process: &Path) -> Option<bool> {
    if !is_privileged(&fs::read(process.join("status")).ok()?) {
        return Some(false);
    }
    let ids = |directory: &Path| fs::read(directory.join("uid_map")).ok();
    Some(ids(process)? == ids(Path::new("/proc/self"))?)
}

/// Whether the text of `/proc/PID/status` shows root's ids and `CAP_SYS_ADMIN`. Each line has the real id, the
/// effective one, the saved one and the file system one: a set-user-ID program keeps the real id of the user that
/// started it.
pub fn is_privileged(status: &[u8]) -> bool {
    let field = |name: &[u8]| {
        let mut lines = status.split(|byte| *byte == b'\n');
        let value = lines.find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(value).ok()
    };
    let is_root = |name| {
        let ids = field(name).unwrap_or_default().split_ascii_whitespace();
        ids.clone().count() == 4 && ids.clone().all(|id| id == "0")
    };
    let capabilities = field(b"CapEff:").and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    let is_admin = capabilities.is_some_and(|set| set & 1 << CAP_SYS_ADMIN != 0);
    is_root(b"Uid:") && is_root(b"Gid:") && is_admin
}

/// Whether root started the program that a process runs: by the ids that the kernel noted when the program was
/// executed, in the text of `/proc/PID/auxv`. A set-user-ID program may have taken root's ids since. `None` when
/// there is no such note, as for a process that has ended.
///
/// `AT_SECURE` decides nothing: it is also set where SELinux changes the domain of a service.
pub fn is_started_by_root(auxv: &[u8]) -> Option<bool> {
    // Two words of a 32-bit program read as one of a 64-bit kernel at first, which names no id.
    of_words::<8>(auxv).or_else(|| of_words::<4>(auxv))
}

fn of_words<const SIZE: usize>(auxv: &[u8]) -> Option<bool> {
    let word = |bytes: &[u8; SIZE]| {
        let mut word = [0; 8];
        let (low, _) = word.split_at_mut(SIZE);
        low.copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let (words, _) = auxv.as_chunks::<SIZE>();
    let (pairs, _) = words.as_chunks::<2>();
    let ids = pairs.iter().filter(|[key, _]| IDS.contains(&word(key)));
    let ids: Vec<u64> = ids.map(|[_, id]| word(id)).collect();
    (ids.len() == IDS.count()).then(|| ids.iter().all(|id| *id == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auxv<const SIZE: usize>(pairs: &[(u64, u64)]) -> Vec<u8> {
        let words = pairs.iter().flat_map(|(key, value)| [key, value]);
        words.flat_map(|word| word.to_le_bytes().into_iter().take(SIZE)).collect()
    }

    #[test]
    fn fuzz_proc_auxv() {
        podstuck_fuzz::fuzz("proc_auxv", |input| {
            let _ = is_started_by_root(input);
        });
    }

    #[test]
    fn the_user_that_started_a_program_is_noted_at_its_start() {
        // As for `su`, which user 4242 has started and which has taken root's ids.
        let table = [
            ([0, 0, 0, 0], Some(true)),
            ([4242, 0, 4242, 4242], Some(false)),
            ([4242, 0, 0, 0], Some(false)),
            ([0, 0, 0, 4242], Some(false)),
        ];
        for ([uid, euid, gid, egid], expected) in table {
            // AT_SECURE is 23: it says the same for a domain of SELinux.
            let pairs = [(6, 4096), (11, uid), (12, euid), (13, gid), (14, egid), (23, 1), (0, 0)];
            assert_eq!(is_started_by_root(&auxv::<8>(&pairs)), expected, "{pairs:?}");
            assert_eq!(is_started_by_root(&auxv::<4>(&pairs)), expected, "{pairs:?}");
        }
        assert_eq!(is_started_by_root(b""), None, "it has ended");
        assert_eq!(is_started_by_root(&auxv::<8>(&[(11, 0), (0, 0)])), None);
        let own = fs::read("/proc/self/auxv").unwrap();
        assert_eq!(is_started_by_root(&own), Some(rustix::process::getuid().is_root()));
    }
}
