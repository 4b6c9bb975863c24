//! The time zone in which a process writes its log, found as Go finds it: klog writes local times without a zone, and
//! podstuck may run in a container with another zone.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use jiff::tz::TimeZone;

use crate::identity::{layout::normalise, on_host};

/// Most bytes that are read of an environment, and of a zone file.
const LONGEST: u64 = 128 << 10;
const LINKS: usize = 8;
const LOCAL: &str = "/etc/localtime";
const ZONES: &str = "/usr/share/zoneinfo";

/// The zone of the process whose log this helper reads: one helper reads one log.
static OF_WRITER: OnceLock<TimeZone> = OnceLock::new();

/// The zone of the log that this helper reads, else its own.
pub(super) fn zone() -> TimeZone {
    OF_WRITER.get().cloned().unwrap_or_else(TimeZone::system)
}

/// Sets the zone to that of the process that writes the log.
pub(super) fn follow(process: &Path) {
    if let Some(zone) = of_process(process) {
        let _is_known = OF_WRITER.set(zone);
    }
}

/// The zone of a process, by its environment and its files.
fn of_process(process: &Path) -> Option<TimeZone> {
    let environment = read(&process.join("environ"))?;
    let Some(path) = file(&environment) else { return Some(TimeZone::UTC) };
    let path = linked(&process.join("root"), path)?;
    TimeZone::tzif("", &read(&path)?).ok()
}

/// Resolves a path's last component below a root directory: the kernel would follow absolute links in this process's
/// root.
fn linked(root: &Path, mut path: PathBuf) -> Option<PathBuf> {
    for _ in 0..LINKS {
        let below = on_host(root, &path);
        let Ok(to) = fs::read_link(&below) else { return Some(below) };
        path = normalise(&path.parent()?.join(to));
    }
    None
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The zone file by an environment; `None` for UTC (Go's time/zoneinfo_unix.go).
fn file(environment: &[u8]) -> Option<PathBuf> {
    let mut all = environment.split(|byte| *byte == 0);
    let Some(value) = all.find_map(|one| one.strip_prefix(b"TZ=")) else {
        return Some(LOCAL.into());
    };
    let name = Path::new(OsStr::from_bytes(value.strip_prefix(b":").unwrap_or(value)));
    let is_utc = name.as_os_str().is_empty() || name == Path::new("UTC");
    (!is_utc).then(|| Path::new(ZONES).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_found_as_go_finds_it() {
        let of = |environment: &str| file(environment.replace(' ', "\0").as_bytes());
        assert_eq!(of("A=b HOME=/"), Some(LOCAL.into()));
        assert_eq!(of("A=b TZ=Asia/Tokyo X="), Some("/usr/share/zoneinfo/Asia/Tokyo".into()));
        assert_eq!(of("TZ=:/zones/x"), Some("/zones/x".into()));
        assert_eq!((of("TZ= A=b"), of("TZ=UTC"), of("TZ=:")), (None, None, None));
    }

    #[test]
    fn a_link_stays_below_the_root_that_it_is_in() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("etc")).unwrap();
        fs::create_dir_all(at("zones")).unwrap();
        fs::write(at("zones/x"), "x").unwrap();
        std::os::unix::fs::symlink("/zones/y", at("etc/localtime")).unwrap();
        std::os::unix::fs::symlink("../zones/x", at("zones/y")).unwrap();
        assert_eq!(linked(root.path(), LOCAL.into()), Some(at("zones/x")));
        std::os::unix::fs::symlink("y", at("zones/x2")).unwrap();
        fs::remove_file(at("zones/y")).unwrap();
        std::os::unix::fs::symlink("x2", at("zones/y")).unwrap();
        assert_eq!(linked(root.path(), LOCAL.into()), None, "a loop");
    }

    #[test]
    fn a_processes_own_environment_counts() {
        let zones = ["/zones/none", "UTC"].map(|zone| {
            let sleep = std::process::Command::new("sleep").arg("60").env("TZ", zone).spawn();
            let mut sleep = sleep.unwrap();
            // The environment is there once the program runs.
            let own = || fs::read(format!("/proc/{}/environ", sleep.id())).unwrap_or_default();
            while !own().windows(3).any(|part| part == b"TZ=") {
                std::thread::yield_now();
            }
            let zone = of_process(Path::new(&format!("/proc/{}", sleep.id())));
            sleep.kill().unwrap();
            sleep.wait().unwrap();
            zone
        });
        assert_eq!(zones, [None, Some(TimeZone::UTC)], "a zone that is not there is not known");
    }
}
