//! `cargo xtask setup`: installs the requirements of the probes' build beyond cargo itself.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bpf_linker;
use crate::rust_src::RustSource;
use crate::workspace::Workspace;
use podstuck_process as process;

/// Installs each requirement that is missing.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    c_linker()?;
    let rustc = Rustc::locate(workspace)?;
    RustSource::new(&rustc, workspace).ensure()?;
    bpf_linker::ensure(&rustc, workspace)
}

/// The compiler in use.
pub(crate) struct Rustc {
    pub(crate) sysroot: PathBuf,
    /// Such as `1.95.0`
    pub(crate) version: String,
    /// The major version of its LLVM, such as 22
    pub(crate) llvm: u32,
    /// The commit that it was built from, if it names one
    pub(crate) commit: Option<String>,
}

impl Rustc {
    /// Queries the compiler that cargo uses in the workspace.
    pub(crate) fn locate(workspace: &Workspace) -> Result<Self> {
        let program = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let ask = |arguments: &[&str]| {
            process::output(Command::new(&program).args(arguments).current_dir(&workspace.root))
                .context("no Rust compiler answers; install one, for example with rustup")
        };
        let facts = ask(&["--version", "--verbose"])?;
        let fact = |name: &str| {
            facts
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
                .with_context(|| format!("`rustc --version --verbose` prints no line {name}"))
        };
        let llvm = fact("LLVM version:")?;
        let major = llvm.split('.').next().and_then(|number| number.parse().ok());
        Ok(Self {
            sysroot: PathBuf::from(ask(&["--print", "sysroot"])?.trim_end()),
            version: fact("release:")?.to_owned(),
            commit: fact("commit-hash:").ok().filter(|it| *it != "unknown").map(str::to_owned),
            llvm: major.with_context(|| format!("rustc says that its LLVM is `{llvm}`"))?,
        })
    }
}

/// Cargo links host programs with `cc` by default.
fn c_linker() -> Result<()> {
    if process::find("cc").is_none() {
        bail!("no C linker `cc`; on Debian: `apt-get install gcc libc6-dev`");
    }
    println!("C linker: there");
    Ok(())
}
