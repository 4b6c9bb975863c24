//! The standard library's source, from which cargo builds `core` for the BPF target.
//!
//! It must have exactly the compiler's version. There are three ways to obtain it, which are tried in turn, since
//! rustup cannot reach its server on some build machines.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::checksum::sha256;
use crate::setup::Rustc;
use crate::workspace::Workspace;
use podstuck_process as process;
use podstuck_process::private_apt::PrivateApt;

/// Names an archive, `*.tar.xz`, that contains `library/`. Unpacking requires the program `xz`.
const ARCHIVE_VARIABLE: &str = "PODSTUCK_RUST_SRC";

/// The SHA-256 of an archive that is not among [`ARCHIVES`].
const SUM_VARIABLE: &str = "PODSTUCK_RUST_SRC_SHA256";

/// Known archives, by the version of their library. rustup and apt verify their downloads themselves.
const ARCHIVES: [(&str, &str); 1] =
    [("1.95.0", "4c5664da1382a93d6505a9c67184aa539273f7f78290fd620e166a9beeeb7652")];

/// The files that cargo's build-std reads: the source of `core`, and its workspace.
const NEEDED: [&str; 4] = [
    "Cargo.toml",
    "Cargo.lock",
    "core/src/lib.rs",
    "compiler-builtins/compiler-builtins/src/lib.rs",
];

/// The compiler's version, in a copy that this program installed. If rustup updates a toolchain in place, it leaves
/// the copy unchanged, which is outdated then.
const STAMP: &str = ".podstuck-rustc-version";

/// Debian suites that may have this version, in the order of the search.
const SUITES: [&str; 5] = ["trixie-backports", "trixie", "forky-backports", "forky", "sid"];

/// A way to obtain the source.
type Way = fn(&RustSource) -> Result<()>;

/// The source, which exists or is to be installed.
pub(crate) struct RustSource {
    library: PathBuf,
    rustc: PathBuf,
    version: String,
    scratch: PathBuf,
    archive: Option<OsString>,
    /// The archive's checksum, as set by the caller
    sum: Option<String>,
}

impl RustSource {
    /// Determines where cargo expects the source.
    pub(crate) fn new(rustc: &Rustc, workspace: &Workspace) -> Self {
        Self {
            library: rustc.sysroot.join("lib/rustlib/src/rust/library"),
            rustc: rustc.sysroot.join("bin/rustc"),
            version: rustc.version.clone(),
            scratch: workspace.target.join("setup"),
            archive: env::var_os(ARCHIVE_VARIABLE),
            sum: env::var(SUM_VARIABLE).ok(),
        }
    }

    /// Installs the source, unless it exists.
    pub(crate) fn ensure(&self) -> Result<()> {
        let version = &self.version;
        if self.is_stale() {
            self.remove()?;
        }
        if self.is_complete() {
            println!("standard library's source {version}: there");
            return Ok(());
        }
        let ways: [(&str, Way); 3] = [
            ("rustup", Self::ask_rustup),
            ("Debian's package rust-src", Self::unpack_debian),
            ("an archive", Self::unpack_archive),
        ];
        let mut complaints = String::new();
        for (name, get) in ways {
            match get(self) {
                Ok(()) => {
                    println!("standard library's source {version}: got from {name}");
                    return Ok(());
                }
                Err(error) => complaints.push_str(&format!("\n- from {name}: {error:#}")),
            }
        }
        bail!(
            "cannot get the standard library's source for rustc {version}:{complaints}\n\
             By hand: `rustup component add rust-src`, or set {ARCHIVE_VARIABLE} to a .tar.xz \
             (which takes the package xz-utils) that holds the folder `library` of Rust \
             {version}'s source, and {SUM_VARIABLE} to its SHA-256, or put that folder at {}",
            self.library.display()
        )
    }

    fn is_complete(&self) -> bool {
        is_library(&self.library)
    }

    fn is_stale(&self) -> bool {
        fs::read_to_string(self.library.join(STAMP)).is_ok_and(|stamp| stamp != self.version)
    }

    fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.library) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error)
                .with_context(|| format!("cannot remove the unfit {}", self.library.display())),
            _ => Ok(()),
        }
    }

    fn ask_rustup(&self) -> Result<()> {
        if process::find("rustup").is_none() {
            bail!("there is no rustup");
        }
        // The rustup beside a distribution's rustc may be unrelated to it.
        let managed = process::output(Command::new("rustup").args(["which", "rustc"]))?;
        if Path::new(managed.trim_end()) != self.rustc {
            bail!("{} is not rustup's", self.rustc.display());
        }
        process::output(Command::new("rustup").args(["component", "add", "rust-src"]))?;
        if !self.is_complete() {
            bail!("rustup calls it installed, but {} is not complete", self.library.display());
        }
        Ok(())
    }

    fn unpack_debian(&self) -> Result<()> {
        let apt = PrivateApt::new(self.scratch.join("apt"))?;
        let unpacked = self.scratch.join("rust-src");
        let version = format!("{}*", self.version);
        let mut complaints = Vec::new();
        for suite in SUITES {
            if let Err(error) = apt.unpack(suite, "rust-src", &version, &unpacked) {
                complaints.push(format!("{suite}: {error:#}"));
                continue;
            }
            let library = unpacked.join(format!("usr/src/rustc-{}/library", self.version));
            self.install(|stage| {
                process::output(Command::new("cp").arg("-a").arg(&library).arg(stage))
            })?;
            return fs::remove_dir_all(&self.scratch)
                .with_context(|| format!("cannot remove {}", self.scratch.display()));
        }
        bail!("{}", complaints.join("; "))
    }

    fn unpack_archive(&self) -> Result<()> {
        let archive =
            self.archive.as_ref().with_context(|| format!("{ARCHIVE_VARIABLE} is not set"))?;
        let known = ARCHIVES.iter().find(|(version, _)| *version == self.version);
        let wanted = self.sum.as_deref().or(known.map(|(_, sum)| *sum)).with_context(|| {
            format!("no archive for {} is known; say its SHA-256 by {SUM_VARIABLE}", self.version)
        })?;
        let sum = sha256(Path::new(archive))?;
        if sum != wanted.to_ascii_lowercase() {
            bail!(
                "{} has the SHA-256 {sum}, and {wanted} is wanted; {SUM_VARIABLE} says another",
                Path::new(archive).display()
            );
        }
        self.install(|stage| {
            process::output(
                Command::new("tar").arg("-xJf").arg(archive).arg("-C").arg(stage).arg("library"),
            )
        })
    }

    /// Lets `fill` create the folder `library` in a temporary folder, and renames it when it is complete, so that a
    /// partial copy is never used.
    fn install(&self, fill: impl Fn(&Path) -> Result<String>) -> Result<()> {
        let parent = self.library.parent().context("the library has no parent folder")?;
        let stage = parent.join(format!(".podstuck-{}", std::process::id()));
        fs::create_dir_all(&stage)
            .with_context(|| format!("cannot create {}; run this as its owner", stage.display()))?;
        let done = fill(&stage).and_then(|_| {
            let library = stage.join("library");
            if !is_library(&library) {
                bail!("it holds no whole `library` folder");
            }
            fs::write(library.join(STAMP), &self.version)
                .with_context(|| format!("cannot write into {}", library.display()))?;
            self.remove()?;
            fs::rename(&library, &self.library)
                .with_context(|| format!("cannot rename it to {}", self.library.display()))
        });
        let cleaned = fs::remove_dir_all(&stage)
            .with_context(|| format!("cannot remove {}", stage.display()));
        done.and(cleaned)
    }
}

fn is_library(folder: &Path) -> bool {
    NEEDED.iter().all(|file| folder.join(file).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that only an archive can provide, for a sysroot in `folder`.
    fn source(folder: &Path, files: &[&str]) -> RustSource {
        let packed = folder.join("packed");
        for file in files {
            let file = packed.join("library").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let archive = folder.join("library.tar.xz");
        let mut tar = Command::new("tar");
        process::output(tar.arg("-cJf").arg(&archive).arg("-C").arg(&packed).arg("library"))
            .unwrap();
        RustSource {
            library: folder.join("sysroot/lib/rustlib/src/rust/library"),
            rustc: folder.join("sysroot/bin/rustc"),
            version: "1.2.3".into(),
            scratch: folder.join("scratch"),
            sum: Some(sha256(&archive).unwrap()),
            archive: Some(archive.into()),
        }
    }

    fn entries(source: &RustSource) -> usize {
        fs::read_dir(source.library.parent().unwrap()).unwrap().count()
    }

    #[test]
    fn an_archive_is_installed_whole() {
        let folder = tempfile::tempdir().unwrap();
        let source = source(folder.path(), &NEEDED);
        assert!(!source.is_complete());
        source.unpack_archive().unwrap();
        assert!(source.is_complete() && !source.is_stale());
        assert_eq!(entries(&source), 1, "only the library stays");

        let updated = RustSource { version: "1.2.4".into(), ..source };
        assert!(updated.is_stale(), "another compiler's source is not taken");
        updated.remove().unwrap();
        assert!(!updated.is_complete());
    }

    #[test]
    fn an_archive_of_another_sum_is_not_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let source = source(folder.path(), &NEEDED);
        let other = RustSource { sum: Some("00".into()), ..source };
        let error = other.unpack_archive().unwrap_err().to_string();
        assert!(error.contains("and 00 is wanted"), "{error}");
        let unknown = RustSource { sum: None, ..other };
        let error = unknown.unpack_archive().unwrap_err().to_string();
        assert!(error.contains(SUM_VARIABLE) && !unknown.is_complete(), "{error}");
    }

    #[test]
    fn of_half_an_archive_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let source = source(folder.path(), &NEEDED[..2]);
        let error = source.unpack_archive().unwrap_err().to_string();
        assert!(error.contains("no whole `library`"), "{error}");
        assert_eq!(entries(&source), 0);
    }

    #[test]
    fn a_source_from_elsewhere_is_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let source = source(folder.path(), &NEEDED);
        source.unpack_archive().unwrap();
        fs::remove_file(source.library.join(STAMP)).unwrap();
        source.ensure().unwrap();
        assert!(source.is_complete() && !source.is_stale());
    }
}
