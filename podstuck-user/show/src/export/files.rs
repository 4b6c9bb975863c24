//! Writes the export directory. Every file is replaced as a whole, so that a reader (and a crash) finds the old one
//! or the new one.

use std::{
    fs::{self, File, Permissions, TryLockError},
    io::{self, Write},
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fstat, mkdirat, openat},
    io::Errno,
};
use tempfile::NamedTempFile;

use super::{
    csv,
    error::ExportError,
    findings_file::FindingsFile,
    hlog,
    prometheus::{self, Counts},
};
use podstuck_confine::way::{Base, Way};
use podstuck_model::{
    finding::Finding,
    path::safe_path,
    series::{NamesTable, SeriesTable},
    summary::Completeness,
    totals::Totals,
};

/// node_exporter, and other collectors of the files, need not be root.
const MODE: u32 = 0o644;

/// Flags for inspecting a name without following a link.
const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The data of one export.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// All series of the run and the names of their targets, if the files by target are to be written.
    pub by_target: Option<(&'a SeriesTable, &'a NamesTable)>,
    /// The counts of the node.
    pub totals: &'a Totals,
    /// Each finding once, as it stands now.
    pub findings: &'a [Finding],
    /// What may be missing.
    pub completeness: &'a Completeness,
    /// How long the run has traced.
    pub window: Duration,
    /// Start of the run.
    pub start: Timestamp,
}

impl Snapshot<'_> {
    /// Renders the files, each with its name.
    pub fn files(&self) -> impl Iterator<Item = Result<(&'static str, Vec<u8>), ExportError>> {
        let Snapshot { by_target, totals, findings, completeness, window, start } = *self;
        let metrics =
            move |counts| prometheus::prometheus(start, window, counts, findings, completeness);
        let text = move |name, counts| {
            let text = metrics(counts).text().map_err(ExportError::render(name));
            text.map(String::into_bytes)
        };
        let of_node = Counts::OfNode(totals);
        type File<'a> = (&'static str, Box<dyn Fn() -> Result<Vec<u8>, ExportError> + 'a>);
        let of_targets = by_target.map(|(series, names)| -> [File<'_>; 3] {
            let counts = Counts::ByTarget(series, names);
            [
                (hlog::FILE, Box::new(move || hlog::hlog(start, window, (series, names)))),
                (csv::FILE, Box::new(move || csv::csv(series, names))),
                (prometheus::FILE, Box::new(move || text(prometheus::FILE, counts))),
            ]
        });
        let of_node: [File<'_>; 2] = [
            (prometheus::FILE_OF_NODE, Box::new(move || text(prometheus::FILE_OF_NODE, of_node))),
            (prometheus::PROTOBUF_OF_NODE, Box::new(move || Ok(metrics(of_node).protobuf()))),
        ];
        let files = of_targets.into_iter().flatten().chain(of_node);
        files.map(|(name, render)| Ok((name, render()?)))
    }
}

/// The directory of `--export`. It describes one run: a new run replaces the files of the last.
///
/// All methods wait for the disk; call them in a process that no other process waits for.
#[derive(Debug)]
pub struct Exporter {
    dir: PathBuf,
    /// The directory, locked as long as it is open: the lock ends with the process in every case, and leaves no file
    /// behind.
    locked: File,
    findings: FindingsFile,
}

impl Exporter {
    /// Creates the directory and an empty `findings.jsonl`, which shows before tracing begins that the directory is
    /// writable.
    pub fn new(dir: &Path) -> Result<Self, ExportError> {
        let locked = open_or_make(dir)
            .map_err(|source| ExportError::Directory { path: dir.into(), source })?;
        lock(&locked, dir)?;
        let findings = FindingsFile::create(&reached(&locked));
        let findings = findings.map_err(|error| error.below(dir))?;
        Ok(Self { dir: dir.into(), locked, findings })
    }

    /// The open directory.
    pub(super) fn directory(&self) -> &File {
        &self.locked
    }

    /// Adds a line (with its end) to `findings.jsonl`.
    pub fn append(&mut self, line: &str) -> Result<(), ExportError> {
        self.findings.append(line).map_err(|error| error.below(&self.dir))
    }

    /// Replaces any file of the directory, such as `report.html`.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), ExportError> {
        let done = replace(&reached(&self.locked), name, bytes);
        done.map(drop).map_err(|error| error.below(&self.dir))
    }
}

/// Keeps other runs out of the directory.
fn lock(open: &File, dir: &Path) -> Result<(), ExportError> {
    match open.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ExportError::Busy { path: dir.into() }),
        // NFS locks only files that are open for writing (`nfs_flock_lock` by fs/nfs/file.c).
        Err(TryLockError::Error(why)) => {
            tracing::info!("{}: another run would not be noticed: {why}", safe_path(dir));
        }
    }
    Ok(())
}

/// A path to the directory itself, wherever its original path leads by now.
fn reached(directory: &File) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}

/// Opens a directory, and creates missing parents. Links are followed only if they belong to the caller or to root:
/// another user's link would choose what is overwritten.
fn open_or_make(dir: &Path) -> io::Result<File> {
    let own = rustix::process::geteuid().as_raw();
    let mut at = openat(CWD, if dir.is_absolute() { c"/" } else { c"." }, PATH, Mode::empty())?;
    let mut way = Way::of(dir);
    while let Some(name) = way.pop() {
        let step = match openat(&at, &name, PATH, Mode::empty()) {
            Err(Errno::NOENT) => {
                match mkdirat(&at, &name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                openat(&at, &name, PATH, Mode::empty())?
            }
            step => step?,
        };
        let stat = fstat(&step)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            at = step;
            continue;
        }
        if stat.st_uid != own && stat.st_uid != 0 {
            let shown = safe_path(Path::new(&name)).into_owned();
            let why = format!("{shown} is a link that user {} has made", stat.st_uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if matches!(way.follow(&step)?, Base::Root) {
            at = openat(CWD, c"/", PATH, Mode::empty())?;
        }
    }
    Ok(openat(&at, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Writes to a temporary name, then renames; returns the file, still open.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> Result<fs::File, ExportError> {
    let write = || -> io::Result<fs::File> {
        // node_exporter reads every `*.prom`: the temporary name must not end so.
        let mut file = NamedTempFile::with_prefix_in(format!(".{name}."), dir)?;
        file.write_all(bytes)?;
        // Unlike a mode given at creation, this is not reduced by the umask.
        file.as_file().set_permissions(Permissions::from_mode(MODE))?;
        // Otherwise a power cut may leave an empty file under the new name.
        file.as_file().sync_all()?;
        Ok(file.persist(dir.join(name))?)
    };
    write().map_err(|source| ExportError::Write { path: dir.join(name), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{export::sample, present::sample as findings};

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn all_files_appear_readable_by_others_and_nothing_else_is_left() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        let exporter = Exporter::new(&dir).unwrap();
        let snapshot = Snapshot {
            by_target: Some((&sample::table(), &NamesTable::new())),
            totals: &Totals::default(),
            findings: &[findings::finding()],
            completeness: &Completeness::default(),
            window: Duration::from_secs(30),
            start: sample::start(),
        };
        for file in snapshot.files().chain(snapshot.files()) {
            let (name, bytes) = file.unwrap();
            exporter.replace(name, &bytes).unwrap();
        }
        exporter.replace("report.html", b"<!doctype html>").unwrap();
        let all = [
            "findings.jsonl",
            "histograms.csv",
            "histograms.hlog",
            "metrics.prom",
            "node-metrics.pb",
            "node-metrics.txt",
            "report.html",
        ];
        assert_eq!(names(&dir), all);
        for name in all {
            let mode = fs::metadata(dir.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o644, "{name}");
        }
    }

    #[test]
    fn a_link_at_the_name_is_replaced_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "keep").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("metrics.prom")).unwrap();
        Exporter::new(dir.path()).unwrap().replace("metrics.prom", b"new").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "keep");
        assert_eq!(fs::read_to_string(dir.path().join("metrics.prom")).unwrap(), "new");
    }

    /// In `/tmp`, any user may have created a link to a place where root writes.
    #[test]
    fn a_directory_that_another_users_link_names_is_not_written_to() {
        if !rustix::process::geteuid().is_root() {
            return podstuck_testing::skip("root is needed to make links of several owners");
        }
        let root = tempfile::tempdir().unwrap();
        let (victim, link) = (root.path().join("victim"), root.path().join("out"));
        fs::create_dir(&victim).unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(4242), None).unwrap();
        for asked in [link.clone(), link.join("new/er")] {
            let why = format!("{:#}", anyhow::Error::from(Exporter::new(&asked).unwrap_err()));
            assert!(why.contains("out is a link that user 4242 has made"), "{why}");
        }
        assert!(names(&victim).is_empty());
        std::os::unix::fs::lchown(&link, Some(0), None).unwrap();
        let exporter = Exporter::new(&link.join("new/../new")).unwrap();
        // The target of the name no longer matters.
        fs::remove_file(&link).unwrap();
        exporter.replace("metrics.prom", b"").unwrap();
        assert_eq!(names(&victim.join("new")), ["findings.jsonl", "metrics.prom"]);
    }

    #[test]
    fn a_directory_is_one_runs() {
        let dir = tempfile::tempdir().unwrap();
        let first = Exporter::new(dir.path()).unwrap();
        fs::write(dir.path().join("findings.jsonl"), "first's").unwrap();
        let error = Exporter::new(dir.path()).unwrap_err();
        assert!(matches!(error, ExportError::Busy { .. }), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join("findings.jsonl")).unwrap(), "first's");
        drop(first);
        Exporter::new(dir.path()).unwrap();
    }

    #[test]
    fn errors_name_the_place_and_the_cause() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let error = anyhow::Error::from(Exporter::new(&file.join("x")).unwrap_err());
        assert_eq!(
            format!("{error:#}"),
            format!(
                "cannot create the export directory {}/x: Not a directory (os error 20)",
                file.display()
            )
        );
        fs::create_dir(root.path().join("metrics.prom")).unwrap();
        let exporter = Exporter::new(root.path()).unwrap();
        let error = anyhow::Error::from(exporter.replace("metrics.prom", b"").unwrap_err());
        let text = format!("{error:#}");
        assert!(text.contains("metrics.prom: ") && text.contains("Is a directory"), "{text}");
        assert_eq!(names(root.path()), ["file", "findings.jsonl", "metrics.prom"]);
    }
}
