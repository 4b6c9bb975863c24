//! What `cargo xtask dist` makes, once for all tests.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use podstuck_tests::{beside_the_tests, podstuck};

/// Cargo's own folder for what tests make; the next run replaces what this one leaves.
const PLACE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/dist");
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Where Debian keeps what an administrator runs.
const PROGRAMS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The key that belongs to the signature, beside the artefacts.
pub const PUBLIC_KEY: &str = "podstuck.pub";

/// The folder with the artefacts.
///
/// # Errors
///
/// Why they cannot be made here.
pub fn made() -> Result<&'static Path, &'static str> {
    static MADE: OnceLock<Result<(), &'static str>> = OnceLock::new();
    let is_made = MADE.get_or_init(|| {
        has("dpkg-deb")?;
        has("openssl")?;
        if CLIENTS.iter().any(|name| !beside_the_tests(name).is_file()) {
            return Err(
                "no kubectl-podstuck or podstuck-agent beside the tests: `cargo build --workspace` builds them",
            );
        }
        if !beside_the_tests("xtask").is_file() {
            return Err("no xtask beside the tests: `cargo build --package xtask` builds it");
        }
        make();
        Ok(())
    });
    (*is_made)?;
    Ok(Path::new(PLACE))
}

fn make() {
    let _ = fs::remove_dir_all(PLACE);
    fs::create_dir_all(PLACE).unwrap();
    // What a debugger needs is most of a development build, and would be packed four times.
    let clients = CLIENTS.map(beside_the_tests);
    let programs = ["podstuck", CLIENTS[0], CLIENTS[1]].map(|name| Path::new(PLACE).join(name));
    for (from, to) in [podstuck()].iter().chain(&clients).zip(&programs) {
        fs::copy(from, to).unwrap();
        if has("strip").is_ok() {
            done(tool("strip").arg(to));
        }
    }
    let key = tempfile::tempdir().unwrap();
    let (private, public) = (key.path().join("key"), Path::new(PLACE).join(PUBLIC_KEY));
    new_key(&private, &public);
    let mut dist = Command::new(beside_the_tests("xtask"));
    dist.args(["dist", "--quick", "--sign"]).arg(&private);
    for (option, program) in ["--program", "--plugin", "--agent"].iter().zip(&programs) {
        dist.arg(option).arg(program);
    }
    done(dist.arg("--out").arg(PLACE));
    for file in programs {
        fs::remove_file(file).unwrap();
    }
}

/// Makes a key pair to sign with.
pub fn new_key(private: &Path, public: &Path) {
    let curve = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    done(tool("openssl").arg("genpkey").args(curve).arg("-out").arg(private));
    done(tool("openssl").args(["pkey", "-pubout", "-in"]).arg(private).arg("-out").arg(public));
}

/// A file among them.
pub fn artefact(name: &str) -> PathBuf {
    let file = made().unwrap().join(name);
    assert!(file.is_file(), "{}", file.display());
    file
}

/// The programs that talk to the API server.
const CLIENTS: [&str; 2] = ["kubectl-podstuck", "podstuck-agent"];

/// For these processors, by Debian's name.
pub const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// A program of the machine.
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", PROGRAMS).env("LC_ALL", "C.UTF-8");
    command
}

/// Whether this machine has a program.
///
/// # Errors
///
/// When it does not.
pub fn has(name: &'static str) -> Result<(), &'static str> {
    let there = PROGRAMS.split(':').any(|folder| Path::new(folder).join(name).exists());
    // The name is the reason: which program a test was skipped for.
    if there { Ok(()) } else { Err(name) }
}

/// What a command has printed, which must succeed.
pub fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let error = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{error}");
    String::from_utf8(stdout).unwrap()
}

/// Unpacks an archive that gzip has packed into a folder of the test's own.
pub fn unpacked(archive: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    done(tool("tar").arg("-xzf").arg(artefact(archive)).arg("-C").arg(folder.path()));
    folder
}
