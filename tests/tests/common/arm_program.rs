//! A program for 32-bit ARM, which arm64 kernels run as well: written down word by word, since nothing here
//! compiles for it.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, ExitStatus},
};

/// The whole of it is loaded here.
const ADDRESS: u32 = 0x1_0000;
const HEADERS: u32 = 52 + 32;

/// `unlinkat(AT_FDCWD, "a", 0)`, `unlink("b")`, `rmdir("c")`, `exit(0)`, by the numbers of
/// arch/arm/tools/syscall.tbl.
const CODE: [u32; 17] = [
    0xe3e0_0063, // mvn r0, #99
    0xe28f_102c, // add r1, pc, #44
    0xe3a0_2000, // mov r2, #0
    0xe300_7148, // movw r7, #328
    0xef00_0000, // svc 0
    0xe28f_0020, // add r0, pc, #32
    0xe3a0_700a, // mov r7, #10
    0xef00_0000, // svc 0
    0xe28f_0018, // add r0, pc, #24
    0xe3a0_7028, // mov r7, #40
    0xef00_0000, // svc 0
    0xe3a0_0000, // mov r0, #0
    0xe3a0_7001, // mov r7, #1
    0xef00_0000, // svc 0
    b'a' as u32,
    b'b' as u32,
    b'c' as u32,
];

/// Runs it in a directory.
pub(crate) fn run(program: &Path, directory: &Path) -> io::Result<ExitStatus> {
    let file = program.join("arm");
    fs::write(&file, elf())?;
    fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    Command::new(&file).current_dir(directory).status()
}

fn elf() -> Vec<u8> {
    let size = HEADERS + 4 * CODE.len() as u32;
    let mut bytes = b"\x7fELF\x01\x01\x01".to_vec();
    bytes.resize(16, 0);
    // An executable for ARM.
    bytes.extend([2_u16, 40].into_iter().flat_map(u16::to_le_bytes));
    // Version 1, where it begins, where its one segment is described, no sections, EABI version 5.
    let file = [1, ADDRESS + HEADERS, 52, 0, 0x0500_0000];
    bytes.extend(file.into_iter().flat_map(u32::to_le_bytes));
    bytes.extend([52_u16, 32, 1, 40, 0, 0].into_iter().flat_map(u16::to_le_bytes));
    // Loaded from the file's beginning, to be read and executed.
    let segment = [1, 0, ADDRESS, ADDRESS, size, size, 5, 0x1000];
    bytes.extend(segment.into_iter().chain(CODE).flat_map(u32::to_le_bytes));
    bytes
}
