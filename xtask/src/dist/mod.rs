//! `cargo xtask dist`: all artefacts with which podstuck is installed on a node.

mod archive;
mod completions;
mod data;
mod debian;
mod image;
mod libraries;
mod oci;
mod pages;
mod plugin;
mod provenance;
mod signature;
mod sums;
mod tarball;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use podstuck_process as process;

use crate::architecture::Architecture;
use crate::workspace::Workspace;
use crate::{build, sbom, setup};

/// What is made, and of what.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only for this machine's processors
    #[arg(long)]
    own: bool,
    /// Pack this program for this machine's processors, and build none; what it is made of is then not listed
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// With --program: pack this plugin for kubectl
    #[arg(long, value_name = "FILE", requires = "program")]
    plugin: Option<PathBuf>,
    /// With --program: pack this agent
    #[arg(long, value_name = "FILE", requires = "program")]
    agent: Option<PathBuf>,
    /// Compress little: for tests, which read all of it once
    #[arg(long)]
    quick: bool,
    /// Where to put it; else `dist` in cargo's target folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What the image is called, up to the colon; the plugin for kubectl looks for it by this name
    #[arg(long, value_name = "NAME", default_value = build::IMAGE)]
    image: String,
    /// Where the files will be found, as the manifest for krew says it
    #[arg(long, value_name = "URL", default_value = "https://example.invalid/podstuck/releases")]
    release_url: String,
    /// Sign the statement about the provenance with this private key (PEM, curve P-256), by `openssl`
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
    /// Make nothing: check the artefacts in --out against their signed provenance, by this public key (PEM)
    #[arg(long, value_name = "KEY", conflicts_with_all = ["own", "program", "quick", "sign"])]
    verify: Option<PathBuf>,
}

/// The built programs for one architecture.
struct Built {
    architecture: Architecture,
    program: PathBuf,
    /// For a workstation.
    plugin: PathBuf,
    /// For the image, beside the program.
    agent: PathBuf,
    /// The lists of its dependencies
    lists: Vec<PathBuf>,
}

/// Properties of all artefacts.
struct Release<'a> {
    workspace: &'a Workspace,
    out: PathBuf,
    version: &'static str,
    /// The commit's time in seconds since 1970: the same source yields the same files.
    time: u64,
    quick: bool,
    image: &'a str,
    release_url: &'a str,
}

/// Makes all artefacts and prints their paths.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let out = options.out.clone().unwrap_or_else(|| workspace.target.join("dist"));
    if let Some(key) = &options.verify {
        return provenance::verify(&out, key);
    }
    // Files of an earlier run would get a checksum as well.
    if options.out.is_none() {
        process::folder::remove(&out)?;
    }
    process::folder::create(&out)?;
    let release = Release {
        workspace,
        out,
        version: env!("CARGO_PKG_VERSION"),
        time: time_of_commit(workspace)?,
        quick: options.quick,
        image: &options.image,
        release_url: &options.release_url,
    };
    let built = programs(&release, options)?;
    let own = built.iter().find(|built| built.architecture == Architecture::own());
    let own = &own.context("no program for this machine's processors was built")?.program;
    let pages = pages::of(own)?;
    let completions = completions::of(own)?;
    let mut made = Vec::new();
    for built in &built {
        made.push(tarball::make(&release, built, &pages, &completions)?);
        made.push(debian::make(&release, built, &pages, &completions)?);
        made.extend(built.lists.iter().cloned());
    }
    made.push(image::make(&release, &built)?);
    made.extend(plugin::make(&release, &built)?);
    made.extend(data::make(&release)?);
    made.push(sums::make(&release, &made)?);
    made.extend(provenance::make(&release, options, &made)?);
    for file in &made {
        println!("{}", file.display());
    }
    Ok(())
}

fn programs(release: &Release<'_>, options: &Options) -> Result<Vec<Built>> {
    let own = Architecture::own();
    if let Some(program) = &options.program {
        let plugin = options.plugin.clone().context("--program goes with --plugin")?;
        let agent = options.agent.clone().context("--program goes with --agent")?;
        let (program, lists) = (program.clone(), Vec::new());
        return Ok(vec![Built { architecture: own, program, plugin, agent, lists }]);
    }
    setup::run(release.workspace)?;
    let others = [Architecture::Amd64, Architecture::Arm64].into_iter().filter(|one| *one != own);
    let wanted = [own].into_iter().chain(others.filter(|_| !options.own));
    wanted.map(|architecture| build_for(release, architecture)).collect()
}

fn build_for(release: &Release<'_>, architecture: Architecture) -> Result<Built> {
    let how = build::Options {
        release: true,
        link_statically: true,
        arch: Some(architecture),
        plugin: false,
        sbom: false,
    };
    let program = build::program(release.workspace, &how)?;
    let plugin = build::plugin(release.workspace, architecture, release.image)?;
    let agent = build::agent(release.workspace, architecture)?;
    let mut lists = Vec::new();
    for list in sbom::write(release.workspace, &release.out, architecture)? {
        let name = list.file_name().context("a list has a name")?.to_string_lossy();
        let to =
            release.out.join(name.replacen('.', &format!("-{}.", architecture.of_debian()), 1));
        fs::rename(&list, &to).with_context(|| format!("naming {}", to.display()))?;
        lists.push(to);
    }
    Ok(Built { architecture, program, plugin, agent, lists })
}

fn time_of_commit(workspace: &Workspace) -> Result<u64> {
    let mut log = Command::new("git");
    let printed =
        process::output(log.args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root))?;
    printed.trim().parse().context("the time of the last commit")
}

impl Release<'_> {
    /// Compresses like gzip.
    fn gzip(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        archive::gzip(bytes, self.quick)
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}
