//! Bytes received from an NFS server: `/proc/PID/mountstats`, which the client answers from memory (fs/nfs/super.c,
//! `nfs_show_stats`). Bytes of answers are counted, not calls: a call that timed out has ended, too.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use procfs::{FromBufRead as _, process::MountStats};

use podstuck_model::mountinfo::escape;

/// Limit of bytes read: a node with thousands of mounts has less.
const LONGEST: u64 = 8 << 20;

/// Bytes of answers to all calls on the file system mounted at `point`; `None` when the kernel does not show them.
pub fn received(pid: u32, point: &Path) -> Option<u64> {
    let here = [b" mounted on ", &*escape(point), b" with fstype nfs"].concat();
    // Of several mounts at one place the last: it covers the others.
    open(pid, &here)?.pop()
}

/// Bytes of answers on all NFS mounts that a process sees.
pub fn received_by_all(pid: u32) -> Option<u64> {
    let all = open(pid, b" with fstype nfs")?;
    (!all.is_empty()).then(|| all.into_iter().fold(0, u64::wrapping_add))
}

fn open(pid: u32, header: &[u8]) -> Option<Vec<u64>> {
    let file = fs::File::open(format!("/proc/{pid}/mountstats")).ok()?;
    Some(parse(BufReader::new(file.take(LONGEST)), header))
}

/// The bytes of each mount whose first line contains `header`. Only these blocks are parsed: other mounts may have
/// any name.
fn parse(text: impl BufRead, header: &[u8]) -> Vec<u64> {
    let begins = |line: &[u8]| line.starts_with(b"device ") || line.starts_with(b"no device ");
    let is_its = |line: &[u8]| line.windows(header.len()).any(|part| part == header);
    let (mut found, mut block) = (Vec::new(), Vec::new());
    for line in text.split(b'\n').map_while(Result::ok) {
        if begins(&line) {
            found.extend(of_block(&block));
            block.clear();
            if !is_its(&line) {
                continue;
            }
        } else if block.is_empty() {
            continue;
        }
        block.extend_from_slice(&line);
        block.push(b'\n');
    }
    found.extend(of_block(&block));
    found
}

fn of_block(block: &[u8]) -> Option<u64> {
    let MountStats(found) = MountStats::from_buf_read(block).ok()?;
    let calls = found.into_iter().next()?.statistics?.per_op_stats;
    Some(calls.values().fold(0, |sum, call| sum.wrapping_add(call.bytes_recv)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in tests of nfs-utils and procfs, with the line of a transport.
    fn mountstats(getattr: u64, point: &str) -> String {
        format!(
            "device proc mounted on /proc with fstype proc\n\
             device 127.0.0.1:/ mounted on {point} with fstype nfs4 statvers=1.1\n\
             \topts:\trw,vers=4.1,rsize=1048576,hard,proto=tcp,port=20249,timeo=600,sec=sys,clientaddr=127.0.0.1\n\
             \tage:\t3542\n\
             \timpl_id:\tname='',domain='',date='0,0'\n\
             \tcaps:\tcaps=0x3ffdf,wtmult=512,dtsize=32768,bsize=0,namlen=255\n\
             \tnfsv4:\tbm0=0xfdffbfff,bm1=0x40f9be3e,bm2=0x803,acl=0x3,sessions,pnfs=not configured\n\
             \tsec:\tflavor=6,pseudoflavor=390003\n\
             \tevents:\t114 1579 5 3 132 20 3019 1 2 3 4 5 115 1 4 1 2 4 3 4 5 6 7 8 9 0 1 \n\
             \tbytes:\t1 2 3 4 5 6 7 8 \n\
             \tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n\
             \txprt:\ttcp 909 0 1 0 2 294 294 0 294 0 2 0 0\n\
             \tper-op statistics\n\
             \t        NULL: 0 0 0 0 0 0 0 0 0\n\
             \t        READ: 1 1 0 140 100 0 0 0 0\n\
             \t     GETATTR: 2 2 0 280 {getattr} 0 1 1 0\n\
             \n\
             device tmpfs mounted on /t with fstype tmpfs\n"
        )
    }

    #[test]
    fn answers_to_all_calls_on_the_file_system_count() {
        let parse = |text: &[u8], point: &str| {
            let here = format!(" mounted on {point} with fstype nfs");
            super::parse(text, here.as_bytes()).pop()
        };
        let read = |getattr, point| parse(mountstats(getattr, "/v\\040x").as_bytes(), point);
        assert_eq!(read(216, "/v\\040x"), Some(316));
        assert_eq!(read(600, "/v\\040x"), Some(700));
        assert_eq!(read(216, "/v"), None, "another place");
        assert_eq!(read(216, "/t"), None, "no NFS");
        let twice = mountstats(1, "/v") + &mountstats(2, "/v");
        assert_eq!(parse(twice.as_bytes(), "/v"), Some(102), "the uppermost");
        let odd = [b"device \xff mounted on /\xff with fstype x\n", mountstats(5, "/v").as_bytes()]
            .concat();
        assert_eq!(parse(&odd, "/v"), Some(105));
        let cut = mountstats(5, "/v").split_at(500).0.to_owned();
        let all = super::parse(twice.as_bytes(), b" with fstype nfs");
        assert_eq!(all, [101, 102], "each by itself");
        assert_eq!(parse(cut.as_bytes(), "/v"), None);
    }

    #[test]
    fn fuzz_mountstats() {
        podstuck_fuzz::fuzz("mountstats", |input| {
            let _ = parse(input, b" with fstype nfs");
        });
    }
}
