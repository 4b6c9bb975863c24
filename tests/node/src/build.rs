//! Kubernetes from Debian's source package. That of Debian 12 is 1.20.2 with everything that it needs
//! beside it, and builds with the same release's Go in about six minutes on two cores.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use podstuck_process as process;
use podstuck_process::phases::Phases;
use podstuck_process::private_apt::PrivateApt;

use crate::programs::{BUILT, cache};

/// The release whose Kubernetes can be built from packages alone.
const SUITE: &str = "bookworm";
const PACKAGE: &str = "kubernetes";
/// What it takes, each with Debian's package.
const NEEDED: [(&str, &str); 5] = [
    ("go", "golang-go"),
    ("make", "make"),
    ("rsync", "rsync"),
    ("jq", "jq"),
    ("dpkg-source", "dpkg-dev"),
];
/// What the source calls itself.
const IMPORT: &str = "k8s.io/kubernetes";

/// Builds the programs, unless this machine has them: kept under the versions of what was built and of
/// what built it.
///
/// # Errors
///
/// When something that it takes is missing, or a step fails.
pub fn ensure() -> Result<()> {
    let cache = cache()?;
    let current = cache.join("current");
    if is_whole(&current) {
        println!("Kubernetes: there, in {}", current.display());
        return Ok(());
    }
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(program, _)| process::find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if !missing.is_empty() {
        bail!("building Kubernetes needs: `apt-get install {}`", missing.join(" "));
    }
    let apt = PrivateApt::new(cache.join("apt"))?;
    let source = apt.source_version(SUITE, PACKAGE)?;
    let go = process::output(Command::new("go").args(["env", "GOVERSION"]))?;
    let folder = cache.join(format!("kubernetes-{source}-{}", go.trim()));
    if !is_whole(&folder) {
        let work = cache.join("build");
        make(&apt, &work, &folder).context("building Kubernetes")?;
        process::folder::remove(&work)?;
    }
    if current.is_symlink() {
        fs::remove_file(&current)
            .with_context(|| format!("cannot remove {}", current.display()))?;
    }
    symlink(&folder, &current).with_context(|| format!("cannot make {}", current.display()))
}

fn is_whole(folder: &Path) -> bool {
    BUILT.iter().all(|name| folder.join(name).is_file())
}

fn make(apt: &PrivateApt, work: &Path, into: &Path) -> Result<()> {
    let mut phases = Phases::default();
    process::folder::create(into)?;
    let tree = phases.run("source", || apt.source(PACKAGE, &work.join("source")))?;
    let go = Go::new(work, &tree)?;
    // The API server's code for its own types is not in the source.
    phases.run("generated code", || process::run(&mut go.generate()))?;
    for name in BUILT {
        phases.run(name, || go.build(name, into))?;
    }
    println!("Kubernetes {phases}");
    Ok(())
}

/// Go as this source expects it: from before modules.
struct Go {
    path: PathBuf,
    cache: PathBuf,
}

impl Go {
    fn new(work: &Path, tree: &Path) -> Result<Self> {
        let go = Self { path: work.join("go"), cache: work.join("go-cache") };
        let import = go.tree();
        let parent = import.parent().context("an import path has a parent")?;
        process::folder::create(parent)?;
        if import.is_symlink() {
            fs::remove_file(&import)
                .with_context(|| format!("cannot remove {}", import.display()))?;
        }
        symlink(tree, &import).with_context(|| format!("cannot make {}", import.display()))?;
        Ok(go)
    }

    fn tree(&self) -> PathBuf {
        self.path.join("src").join(IMPORT)
    }

    fn generate(&self) -> Command {
        let mut make = Command::new("make");
        make.args(["--silent", "generated_files"]);
        self.prepare(&mut make);
        make
    }

    fn build(&self, name: &str, into: &Path) -> Result<()> {
        // Under its name only when it is whole.
        let half = into.join(format!("{name}.half"));
        let mut go = Command::new("go");
        go.args(["build", "-ldflags", "-s -w", "-o"])
            .arg(&half)
            .arg(format!("{IMPORT}/cmd/{name}"));
        self.prepare(&mut go);
        process::run(&mut go)?;
        fs::rename(&half, into.join(name)).with_context(|| format!("cannot put {name} in place"))
    }

    fn prepare(&self, command: &mut Command) {
        command
            .current_dir(self.tree())
            // The shell's own idea of where it is, which a symbolic link is part of.
            .env("PWD", self.tree())
            .env("GOPATH", &self.path)
            .env("GOCACHE", &self.cache)
            .env("GO111MODULE", "off")
            .env("GOFLAGS", "")
            .env("CGO_ENABLED", "0");
    }
}
