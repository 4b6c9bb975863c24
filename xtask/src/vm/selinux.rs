//! The policy for a guest whose kernel enforces SELinux: Debian's with all its modules. It is built here, since the
//! package builds it only on a machine that is to enforce it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use podstuck_process::private_apt::PrivateApt;
use podstuck_process::{self as process, folder};

/// The Debian release of the policy and the tools.
const SUITE: &str = "bookworm";
/// The policy, its linker, and the linker's libraries.
const PACKAGES: [&str; 5] =
    ["selinux-policy-default", "semodule-utils", "checkpolicy", "libsepol2", "libselinux1"];
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// The newest policy version that all tested kernels and these tools support.
const VERSION: &str = "33";
/// A guest has no login, so its first process gets the type of a user's shell.
const MODULE: &str = "module podstuck 1.0;
require {
    type kernel_t;
    type unconfined_t;
    role system_r;
    class process { dyntransition setcurrent };
}
role system_r types unconfined_t;
allow kernel_t kernel_t:process setcurrent;
allow kernel_t unconfined_t:process dyntransition;
";

/// Creates the policy below a folder; returns its file.
pub(super) fn policy(folder: &Path) -> Result<PathBuf> {
    let apt = PrivateApt::new(folder.join("selinux-apt"))?;
    apt.update(&[SUITE]).context("cannot get Debian's package indexes")?;
    let packages = PACKAGES.map(str::to_owned);
    let root = folder.join("selinux");
    let stamp = apt.files(&packages)?.join("\n");
    folder::unless_stamped(&root, &stamp, || build(&apt, &packages, &root))?;
    Ok(root.join("policy"))
}

fn build(apt: &PrivateApt, packages: &[String], root: &Path) -> Result<()> {
    apt.unpack_all(packages, root)?;
    let modules = modules(root)?;
    let tool = |name: &str| {
        let mut command = Command::new(root.join("usr/bin").join(name));
        command.env("LD_LIBRARY_PATH", root.join(LIBRARIES)).current_dir(root);
        command
    };
    fs::write(root.join("podstuck.te"), MODULE).context("cannot write the policy's own module")?;
    process::output(tool("checkmodule").args(["-m", "-M", "-o", "podstuck.mod", "podstuck.te"]))?;
    process::output(tool("semodule_package").args(["-o", "podstuck.pp", "-m", "podstuck.mod"]))?;
    process::output(tool("semodule_link").args(["-o", "linked"]).args(modules).arg("podstuck.pp"))?;
    process::output(tool("semodule_expand").args(["-c", VERSION, "linked", "policy"])).map(drop)
}

/// The unpacked modules of the package, the base module first.
fn modules(root: &Path) -> Result<Vec<PathBuf>> {
    let packed = root.join("usr/share/selinux/default");
    let cannot = || format!("cannot read {}", packed.display());
    let mut modules = Vec::new();
    for entry in fs::read_dir(&packed).with_context(cannot)? {
        let from = entry.with_context(cannot)?.path();
        if from.extension().is_none_or(|extension| extension != "bz2") {
            continue;
        }
        let to = from.with_extension("");
        let file = File::create(&to).with_context(|| format!("cannot write {}", to.display()))?;
        let mut unpack = Command::new("busybox");
        process::run(unpack.args(["bunzip2", "-c"]).arg(&from).stdout(file))?;
        modules.push(to);
    }
    modules.sort_by_key(|module| module.file_stem().is_some_and(|stem| stem != "base"));
    Ok(modules)
}
