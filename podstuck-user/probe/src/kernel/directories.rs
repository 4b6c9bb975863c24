//! Hooks that report the directory that the kernel has resolved for a deletion. Without them, a path with directories
//! in it counts by its text, in a view that is proven.

use anyhow::{Result, bail};
use aya::Ebpf;

use super::{
    hooks::{DirectoryHook, Form},
    layout::Layout,
    links::{Link, attach_directory},
    programs::{self, Loaded},
    selftest,
};

/// Whether the directories of deletions are reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directories {
    /// Reported, by hooks of this form.
    Reported(Form),
    /// Not reported, for this reason.
    Unknown(String),
}

impl Default for Directories {
    fn default() -> Self {
        Self::Unknown("syscall tracepoints do not show them".into())
    }
}

/// The hooks that this kernel has.
pub(super) fn hooks(layout: &Layout) -> &'static [DirectoryHook] {
    if layout.tells_directories { &DirectoryHook::ALL } else { &[] }
}

/// Attaches them. All or none: the same path by `rmdir` and by `unlink` is to be read in one way.
pub(super) fn attach(
    ebpf: &mut Ebpf,
    functions: &Loaded,
    form: Form,
    layout: &Layout,
) -> Result<Vec<Link>> {
    if !layout.tells_directories {
        bail!(
            "this kernel has no `{}`: it was built without CONFIG_SECURITY_PATH",
            DirectoryHook::Unlink.function()
        );
    }
    let kprobes;
    let loaded = if form == Form::Kprobe {
        kprobes = programs::load_directory_kprobes(ebpf, &DirectoryHook::ALL);
        &kprobes
    } else {
        functions
    };
    let one = |hook: &DirectoryHook| {
        loaded.directory(form, *hook)?;
        attach_directory(ebpf, form, *hook)
    };
    let links = DirectoryHook::ALL.iter().map(one).collect::<Result<Vec<_>>>()?;
    selftest::directories(ebpf, form)?;
    Ok(links)
}
