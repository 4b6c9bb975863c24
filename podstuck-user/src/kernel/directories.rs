//! Having the kernel tell which directory it has resolved for a deletion. Without it, a path with directories
//! in it counts by its text, in a view that is proven.

use anyhow::{Result, bail};
use aya::Ebpf;

use super::{
    hooks::DirectoryHook,
    layout::Layout,
    links::{Link, attach_directory},
    programs::Loaded,
    selftest,
};

/// Whether the directories of deletions are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directories {
    /// By these hooks.
    Told,
    /// They are not, for this reason.
    Unknown(String),
}

impl Default for Directories {
    fn default() -> Self {
        Self::Unknown("no probe is on a function".into())
    }
}

/// Programs that have a place here.
pub(super) fn hooks(layout: &Layout) -> &'static [DirectoryHook] {
    if layout.tells_directories { &DirectoryHook::ALL } else { &[] }
}

/// Hangs them in. All or none: the same path by `rmdir` and by `unlink` is to be read in one way.
pub(super) fn attach(ebpf: &mut Ebpf, functions: &Loaded, layout: &Layout) -> Result<Vec<Link>> {
    if !layout.tells_directories {
        bail!(
            "this kernel has no `{}`: it was built without CONFIG_SECURITY_PATH",
            DirectoryHook::Unlink.function()
        );
    }
    let one = |hook: &DirectoryHook| {
        functions.directory(*hook)?;
        attach_directory(ebpf, *hook)
    };
    let links = DirectoryHook::ALL.iter().map(one).collect::<Result<Vec<_>>>()?;
    selftest::directories(ebpf)?;
    Ok(links)
}
