//! `cargo xtask reproduce`: checks that the same source yields the same program, wherever it is built.

use anyhow::{Result, bail};
use podstuck_process::folder;

use crate::build::{self, Options};
use crate::checksum::sha256;
use crate::copy::copy_to;
use crate::setup;
use crate::workspace::Workspace;

/// Builds the static program in two independent folders; different bytes are an error. Takes two full builds.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::run(workspace)?;
    let folder = workspace.target.join("reproduce");
    // Artefacts of an earlier build would be reused.
    folder::remove(&folder)?;
    let options = Options { release: true, link_statically: true, ..Options::default() };
    let mut built = Vec::new();
    for place in ["a", "another place/of a longer name"] {
        let root = folder.join(place);
        copy_to(workspace, &root)?;
        let there = Workspace { target: root.join("target"), root };
        let program = build::program(&there, &options)?;
        let sum = sha256(&program)?;
        println!("{sum}  {}", program.display());
        built.push((sum, program));
    }
    let [(one, first), (other, second)] = &built[..] else { bail!("two programs are compared") };
    if one != other {
        bail!("{} and {} differ", first.display(), second.display());
    }
    println!("the same in both places");
    folder::remove(&folder)
}
