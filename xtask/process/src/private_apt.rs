//! Debian packages that are unpacked but not installed, possibly from another release than the machine's.
//!
//! apt gets its own source list, package lists and cache: the machine's are not changed. No privileges are needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{self as process, folder};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An apt configuration that is separate from the machine's.
pub struct PrivateApt {
    folder: PathBuf,
    mirror: String,
    architecture: Option<&'static str>,
}

impl PrivateApt {
    /// Keeps its files in `folder` and uses the machine's Debian mirror.
    pub fn new(folder: PathBuf) -> Result<Self> {
        if process::find("apt-get").is_none() {
            bail!("this machine has no apt");
        }
        // Only prints the addresses that the machine's apt would read.
        let addresses = process::output(Command::new("apt-get").args(["update", "--print-uris"]))?;
        let mirror = debian_mirror(&addresses)
            .context("no source of Debian among this machine's apt sources")?
            .to_owned();
        Ok(Self { folder, mirror, architecture: None })
    }

    /// The same for another architecture, by Debian's name.
    #[must_use]
    pub fn for_architecture(self, architecture: &'static str) -> Self {
        Self { architecture: Some(architecture), ..self }
    }

    /// Downloads a package from one suite, at a version given as a pattern, and unpacks it into the folder
    /// `unpacked`, which is replaced.
    pub fn unpack(&self, suite: &str, package: &str, version: &str, unpacked: &Path) -> Result<()> {
        let pool = self.folder.join("pool");
        // A package of an earlier attempt must not be mistaken for this one.
        folder::fresh(&pool)?;
        folder::fresh(unpacked)?;
        self.update(&[suite])?;
        process::output(
            self.apt_get().arg("download").arg(format!("{package}={version}")).current_dir(&pool),
        )?;
        let archive = fs::read_dir(&pool)
            .and_then(|mut entries| entries.next().transpose())
            .with_context(|| format!("cannot read {}", pool.display()))?
            .with_context(|| format!("apt-get put nothing into {}", pool.display()))?
            .path();
        process::output(Command::new("dpkg").arg("-x").arg(archive).arg(unpacked)).map(drop)
    }

    /// Updates the package indexes of exactly these suites.
    pub fn update(&self, suites: &[&str]) -> Result<()> {
        self.configure("deb", suites)?;
        process::output(self.apt_get().arg("update")).map(drop)
    }

    /// The names of all packages with this prefix.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let mut command = Command::new("apt-cache");
        command.arg("-c").arg(self.settings()).args(["pkgnames", prefix]).env("LC_ALL", "C");
        Ok(process::output(&mut command)?.lines().map(str::to_owned).collect())
    }

    /// The file names of these packages' newest versions, which contain the versions.
    pub fn files(&self, packages: &[String]) -> Result<Vec<String>> {
        let uris =
            process::output(self.apt_get().args(["download", "--print-uris"]).args(packages))?;
        let files: Vec<String> = uris.lines().filter_map(file_of_uri).map(str::to_owned).collect();
        if files.len() != packages.len() {
            bail!("apt-get offers {} to download for {}", files.join(" "), packages.join(" "));
        }
        Ok(files)
    }

    /// These packages with all dependencies, as on a machine without installed packages.
    pub fn with_dependencies(&self, packages: &[&str]) -> Result<Vec<String>> {
        let mut command = self.apt_get();
        // A missing file: no package is installed.
        let status = format!("Dir::State::status={}", self.folder.join("no-status").display());
        command.args(["-o", &status, "-o", "Debug::NoLocking=true"]);
        command.args(["install", "--no-install-recommends", "--print-uris"]).args(packages);
        let uris = process::output(&mut command)?;
        let name = |file: &str| file.split('_').next().map(str::to_owned);
        Ok(uris.lines().filter_map(file_of_uri).filter_map(name).collect())
    }

    /// Unpacks the newest packages of a suite with all dependencies into the folder `root`, unless that has been
    /// done; returns the packages' file names.
    pub fn fill_root(&self, suite: &str, packages: &[&str], root: &Path) -> Result<Vec<String>> {
        self.update(&[suite]).context("cannot get Debian's package indexes")?;
        let packages = self.with_dependencies(packages)?;
        let files = self.files(&packages)?;
        folder::unless_stamped(root, &files.join("\n"), || {
            let architecture = self.architecture.map(|name| format!(" for {name}"));
            let architecture = architecture.unwrap_or_default();
            println!("downloading {} packages of Debian's {suite}{architecture}", packages.len());
            self.unpack_all(&packages, root)
        })?;
        Ok(files)
    }

    /// Downloads packages and unpacks them all into one folder.
    pub fn unpack_all(&self, packages: &[String], unpacked: &Path) -> Result<()> {
        let pool = unpacked.join("pool");
        folder::create(&pool)?;
        process::output(self.apt_get().arg("download").args(packages).current_dir(&pool))?;
        for archive in
            fs::read_dir(&pool).with_context(|| format!("cannot read {}", pool.display()))?
        {
            let archive = archive.with_context(|| format!("cannot read {}", pool.display()))?;
            process::output(Command::new("dpkg").arg("-x").arg(archive.path()).arg(unpacked))?;
        }
        folder::remove(&pool)
    }

    /// The newest version of a source package in a suite.
    pub fn source_version(&self, suite: &str, package: &str) -> Result<String> {
        self.configure("deb-src", &[suite])?;
        process::output(self.apt_get().arg("update"))?;
        let mut command = Command::new("apt-cache");
        command.arg("-c").arg(self.settings()).args(["showsrc", package]).env("LC_ALL", "C");
        let records = process::output(&mut command)?;
        let version = records.lines().find_map(|line| line.strip_prefix("Version: "));
        Ok(version.with_context(|| format!("{suite} has no source of {package}"))?.to_owned())
    }

    /// Downloads the source of a package and unpacks it into a separate folder below `folder`, which is replaced;
    /// returns that folder. Requires an earlier call of `source_version`.
    pub fn source(&self, package: &str, folder: &Path) -> Result<PathBuf> {
        folder::fresh(folder)?;
        let cannot = || format!("cannot read {}", folder.display());
        process::output(self.apt_get().arg("source").arg(package).current_dir(folder))?;
        let entries = fs::read_dir(folder).with_context(cannot)?;
        let mut folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        folders.next().with_context(|| format!("apt-get unpacked nothing in {}", folder.display()))
    }

    /// Writes apt's settings for these suites: `deb` for packages, `deb-src` for sources.
    fn configure(&self, kind: &str, suites: &[&str]) -> Result<()> {
        let [lists, cache] = ["lists", "cache"].map(|name| self.folder.join(name));
        for folder in [lists.join("partial"), cache.join("archives/partial")] {
            folder::create(&folder)?;
        }
        let sources = self.folder.join("sources.list");
        let lines: String = suites
            .iter()
            .map(|suite| format!("{kind} [signed-by={KEYRING}] {} {suite} main\n", self.mirror))
            .collect();
        fs::write(&sources, lines)
            .with_context(|| format!("cannot write {}", sources.display()))?;
        let architecture = self.architecture.map_or_else(String::new, |name| {
            format!("APT::Architecture \"{name}\";\nAPT::Architectures {{ \"{name}\"; }};\n")
        });
        let settings = format!(
            "{architecture}Dir::Etc::sourcelist \"{}\";\n\
             Dir::Etc::sourceparts \"/dev/null\";\n\
             Dir::State::lists \"{}\";\n\
             Dir::Cache \"{}\";\n\
             // apt's own user may not be let into our folder.\n\
             APT::Sandbox::User \"root\";\n\
             // A server out of reach is said as such, not as a package that is missing.\n\
             APT::Update::Error-Mode \"any\";\n",
            sources.display(),
            lists.display(),
            cache.display(),
        );
        fs::write(self.settings(), settings)
            .with_context(|| format!("cannot write {}", self.settings().display()))
    }

    fn settings(&self) -> PathBuf {
        self.folder.join("apt.conf")
    }

    fn apt_get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("-qq").arg("-c").arg(self.settings()).env("LC_ALL", "C");
        command
    }
}

/// The file's name, in a line like `'http://mirror/pool/.../name_1_amd64.deb' name_1_amd64.deb 42`.
fn file_of_uri(line: &str) -> Option<&str> {
    line.strip_prefix('\'')?.split_whitespace().nth(1)
}

/// The address of Debian's archive, from lines like `'http://mirror/debian/dists/bookworm/InRelease'
/// mirror_debian_..._InRelease 0`. The archive of security updates has another name.
fn debian_mirror(addresses: &str) -> Option<&str> {
    addresses.lines().find_map(|line| {
        let (mirror, _) = line.trim_start_matches('\'').split_once("/dists/")?;
        // Debian's cloud images name a list of mirrors instead.
        (mirror.ends_with("/debian") || mirror.ends_with("/debian.list")).then_some(mirror)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_machines_own() {
        let addresses = "\
'https://elsewhere.example/apt/dists/stable/InRelease' elsewhere 0
'http://mirror.example/debian-security/dists/bookworm-security/InRelease' a 0
'http://mirror.example/debian/dists/bookworm/InRelease' b 0
";
        assert_eq!(debian_mirror(addresses), Some("http://mirror.example/debian"));
        assert_eq!(debian_mirror("'http://mirror.example/ubuntu/dists/noble/InRelease' c 0"), None);
    }

    #[test]
    fn the_file_of_a_download_holds_its_version() {
        let line =
            "'http://mirror.example/pool/l/linux_1%3a2_amd64.deb' linux_1%3a2_amd64.deb 9 SHA256:0";
        assert_eq!(file_of_uri(line), Some("linux_1%3a2_amd64.deb"));
        assert_eq!(file_of_uri("W: a warning"), None);
    }
}
