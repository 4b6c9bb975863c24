//! The packages and test programs that a filter may match.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use podstuck_process as process;
use serde_json::Value;

use super::names::{are_made_up, may_have, quotes};
use crate::workspace::Workspace;

/// Builds the probes. A package that depends on a package with it builds them as well.
const PROBE_BUILDER: &str = "aya-build";

/// A target with tests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// The flags with which cargo tests it alone, such as `--test labs`
    flags: Vec<String>,
    /// Its root file
    root: PathBuf,
}

/// A member of the workspace.
#[derive(Clone, Debug)]
struct Package {
    name: String,
    folder: PathBuf,
    targets: Vec<Target>,
    dependencies: Vec<String>,
}

/// The selected tests of one package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) package: String,
    /// Empty for all of its test programs
    pub(crate) flags: Vec<String>,
    /// Whether building them builds the probes
    pub(crate) with_probes: bool,
}

/// The packages with tests that match the filter; empty if no source has such a name.
pub(crate) fn concerned(workspace: &Workspace, filter: &str) -> Result<Vec<Selection>> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
    let metadata = process::output(&mut workspace.cargo(arguments))?;
    let metadata = serde_json::from_str(&metadata).context("cargo metadata is no JSON")?;
    let packages = packages(&metadata);
    let mut selections = Vec::new();
    for package in &packages {
        let mut flags = Vec::new();
        for target in &package.targets {
            if fits(target, &package.targets, filter)?
                || makes_up(target, package, &packages, filter)?
            {
                flags.extend(target.flags.iter().cloned());
            }
        }
        if !flags.is_empty() {
            let with_probes = builds_probes(package, &packages);
            selections.push(Selection { package: package.name.clone(), flags, with_probes });
        }
    }
    Ok(selections)
}

fn packages(metadata: &Value) -> Vec<Package> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let package = |package: &Value| Package {
        name: text(&package["name"]),
        folder: Path::new(&text(&package["manifest_path"]))
            .parent()
            .unwrap_or(Path::new(""))
            .into(),
        targets: list(&package["targets"]).iter().filter_map(target).collect(),
        dependencies: list(&package["dependencies"]).iter().map(|d| text(&d["name"])).collect(),
    };
    list(&metadata["packages"]).iter().map(package).collect()
}

fn target(target: &Value) -> Option<Target> {
    let name = target["name"].as_str()?.to_owned();
    let flags = match target["kind"][0].as_str()? {
        "bin" => vec!["--bin".to_owned(), name],
        "test" => vec!["--test".to_owned(), name],
        "lib" | "proc-macro" => vec!["--lib".to_owned()],
        _ => return None,
    };
    Some(Target { flags, root: target["src_path"].as_str()?.into() })
}

fn builds_probes(package: &Package, all: &[Package]) -> bool {
    let of: BTreeMap<&str, &Package> = all.iter().map(|p| (p.name.as_str(), p)).collect();
    let mut seen = Vec::new();
    let mut waiting = vec![package];
    while let Some(package) = waiting.pop() {
        if package.dependencies.iter().any(|name| name == PROBE_BUILDER) {
            return true;
        }
        seen.push(package.name.as_str());
        let next = package.dependencies.iter().filter_map(|name| of.get(name.as_str()).copied());
        waiting.extend(next.filter(|next| !seen.contains(&next.name.as_str())));
    }
    false
}

/// Whether a target may generate a matching test at run time, from texts in its package or in one that the package
/// depends on.
fn makes_up(target: &Target, package: &Package, all: &[Package], filter: &str) -> Result<bool> {
    if target.flags.first().is_none_or(|flag| flag != "--test")
        || !are_made_up(&text(&target.root)?)
    {
        return Ok(false);
    }
    let is_near =
        |other: &&Package| other.name == package.name || package.dependencies.contains(&other.name);
    for folder in all.iter().filter(is_near).map(|other| &other.folder) {
        for file in files_below(&folder.join("src"), &[])? {
            if quotes(filter, &text(&file)?) {
                return Ok(true);
            }
        }
    }
    Ok(quotes(filter, &text(&target.root)?))
}

fn text(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Whether a file of a target has a matching test.
fn fits(target: &Target, all: &[Target], filter: &str) -> Result<bool> {
    let Some(folder) = target.root.parent() else { return Ok(false) };
    let roots: Vec<&Path> =
        all.iter().map(|other| other.root.as_path()).filter(|root| *root != target.root).collect();
    // The root's own name is not part of its tests' names.
    if may_have(filter, Path::new(""), &text(&target.root)?) {
        return Ok(true);
    }
    // Next to a library, the other files belong to the library.
    let beside = |root: &Path| root.parent() == Some(folder) && root.ends_with("lib.rs");
    if roots.iter().any(|root| beside(root)) {
        return Ok(false);
    }
    for file in files_below(folder, &roots)? {
        let place = file.strip_prefix(folder).unwrap_or(&file);
        if file != target.root && may_have(filter, place, &text(&file)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The Rust files in a folder, except the roots of other targets and the files in these roots' own folders.
fn files_below(folder: &Path, others: &[&Path]) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.is_dir() {
            if !others.iter().any(|other| other.parent() == Some(path.as_path())) {
                files.extend(files_below(&path, others)?);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && !others.contains(&path.as_path())
        {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(filter: &str) -> Vec<Selection> {
        concerned(&Workspace::locate().unwrap(), filter).unwrap()
    }

    #[test]
    fn a_test_of_one_crate_concerns_that_crate_alone() {
        let found = found("a_test_of_one_crate_concerns_that_crate_alone");
        let flags = ["--bin", "xtask"].map(str::to_owned).to_vec();
        assert_eq!(found, [Selection { package: "xtask".into(), flags, with_probes: false }]);
    }

    #[test]
    fn a_test_against_the_kernel_takes_its_program_and_the_probes() {
        let found = found("calls_of_32_bit_programs");
        let flags = ["--test", "other_ways"].map(str::to_owned).to_vec();
        let package = "podstuck-tests".into();
        assert_eq!(found, [Selection { package, flags, with_probes: true }]);
    }

    #[test]
    fn an_unknown_name_concerns_no_target() {
        let unheard_of = format!("no_test{}is_called_so", '_');
        assert_eq!(found(&unheard_of), []);
    }
}
