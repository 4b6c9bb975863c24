//! What the engine's queries ask of the helper process or of the mount tables: for threads that may
//! wait.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::{
    attributes::ReadAttributes,
    clients::{self, FindClients},
    entries::ReadDirectory,
    listeners::FindListener,
    mounts::of_namespace,
    protected::FindProtected,
    reach::ReachPath,
    remaining::CountRemaining,
};
use podstuck_confine::{
    alive::{self, Occasion},
    helper::{ask, ask_in_parts},
};
use podstuck_model::{
    client::Client,
    hung::MountPoint,
    mounts::{Mount, Mounts},
    object::{Entries, Protected, User},
    query::{Listening, NoAnswer, ObjectAttributes},
    remaining::Remaining,
};

/// FUSE mounts that are looked at for one query.
const MOUNTS_MAX: usize = 4;

/// The mounts of a namespace above, at and below a path, and one by its id; `None` when it is gone.
pub fn mounts(pid: u32, namespace: u32, path: &Path, id: u32) -> Option<Mounts> {
    let mut found = of_namespace(pid, namespace)?;
    let wanted = |mount: &Mount| {
        let on_the_way = mount.point.starts_with(path) || path.starts_with(&mount.point);
        on_the_way || (id != 0 && mount.id == id)
    };
    found.all.retain(wanted);
    Some(found)
}

/// The mounts of a namespace on a file or directory, whichever way leads to it; `None` when it is gone.
pub(crate) fn mounts_on(pid: u32, namespace: u32, path: &Path) -> Option<Mounts> {
    let mut found = of_namespace(pid, namespace)?;
    found.all = found.on_file(path).into_iter().cloned().collect();
    Some(found)
}

/// The errno of each mount that could be looked at, 0 if it answers.
pub fn reach(pid: u32, mounts: Vec<MountPoint>) -> Vec<(MountPoint, i32)> {
    let looked = mounts.into_iter().take(MOUNTS_MAX).filter_map(|mount| {
        // One that does not answer is a call that hangs, and is found as such.
        let errno = ask(ReachPath { pid, path: mount.point.clone().into() }).ok()?;
        Some((mount, errno))
    });
    looked.collect()
}

/// Flags of an object and of its directory.
///
/// # Errors
/// Fails when one of them is not there, or does not answer.
pub fn attributes(
    pid: u32,
    directory: PathBuf,
    name: OsString,
    expected: (u32, u64),
) -> Result<ObjectAttributes, NoAnswer> {
    ask(ReadAttributes { pid, directory: directory.into(), name, expected })
}

/// What in a tree has attributes that forbid its removal.
///
/// # Errors
/// Fails when it is not there, or does not answer.
pub fn protected(pid: u32, directory: PathBuf) -> Result<Protected, NoAnswer> {
    ask(FindProtected { pid, directory: directory.into() })
}

/// Who has a connection to a daemon.
///
/// # Errors
/// Fails when it is in another network, or when the kernel does not tell.
pub fn clients(pid: u32) -> Result<Vec<Client>, NoAnswer> {
    let found = ask(FindClients { pid });
    clients::note(pid, found.as_ref().err());
    found
}

/// Whether anybody on the node listens at an address of its own.
///
/// # Errors
/// Fails when the address is none, or when nothing can be read.
pub fn listener(address: &str, port: u16) -> Result<Listening, NoAnswer> {
    let address =
        address.parse().map_err(|_| NoAnswer::Helper(format!("{address} is no address")))?;
    ask(FindListener { address, port })
}

/// How much is left in a tree.
///
/// # Errors
/// Fails when it is not there, or does not answer.
pub fn remaining(pid: u32, directory: PathBuf) -> Result<Remaining, NoAnswer> {
    ask(CountRemaining::new(pid, directory))
}

/// Who uses something below a directory, also when it does not answer; and what is in it.
pub fn directory(
    pid: u32,
    namespace: u32,
    directory: PathBuf,
) -> (Vec<User>, Result<Entries, NoAnswer>) {
    let mut users = Vec::new();
    let why_not = alive::why_not(pid, &directory, Occasion::Answered);
    let (directory, users_only) = (directory.into(), why_not.is_some());
    let question = ReadDirectory { pid, namespace, directory, users_only };
    let entries = ask_in_parts(question, |part| users = part).map_err(NoAnswer::from);
    (users, why_not.map_or(entries, |why| Err(NoAnswer::NotEntered(why))))
}
