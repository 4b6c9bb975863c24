//! Makes deleting system calls on demand and counts them itself: the independent truth of the
//! tests. Prints its tally as JSON, `{"unlinkat": {"ok": 3}}`.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, open},
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::stat::Mode,
    unistd::{UnlinkatFlags, chdir, chroot, unlink, unlinkat},
};
use podstuck_tests::{RMDIR, UNLINK};

#[cfg(target_arch = "x86_64")]
mod int_80;

mod io_uring;

type Tally = BTreeMap<&'static str, BTreeMap<String, u64>>;

fn main() -> Result<()> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [verb, rest @ ..] = words.as_slice() else { bail!("no verb") };
    let paths: Vec<&Path> = rest.iter().map(Path::new).collect();
    let mut tally = Tally::new();
    match (verb.to_str(), paths.as_slice()) {
        (Some("unlink"), [path]) => note(&mut tally, UNLINK, unlink(*path)),
        (Some("rmdir"), [path]) => note(&mut tally, RMDIR, rmdir(path)),
        (Some("umount"), [path]) => note(&mut tally, "umount2", umount2(*path, MntFlags::empty())),
        (Some("at"), [dir, name]) => remove_dir_at(&mut tally, &directory(dir)?, name),
        (Some("cwd"), [dir, name]) => {
            chdir(*dir)?;
            note(
                &mut tally,
                "unlinkat+AT_REMOVEDIR",
                unlinkat(AT_FDCWD, *name, UnlinkatFlags::RemoveDir),
            );
        }
        (Some("chroot"), [root, path]) => {
            chroot(*root).context("chroot")?;
            chdir("/")?;
            note(&mut tally, RMDIR, rmdir(path));
        }
        (Some("apart"), [path, mounts @ ..]) => {
            move_apart(mounts)?;
            note(&mut tally, RMDIR, rmdir(path));
            note(&mut tally, UNLINK, unlink(*path));
        }
        (Some("renamed"), [from, to, name]) => {
            let open = directory(from)?;
            // Seen under the old name first, so that an answer remembered too long would show.
            remove_dir_at(&mut tally, &open, name);
            fs::rename(from, to)?;
            remove_dir_at(&mut tally, &open, name);
        }
        #[cfg(target_arch = "x86_64")]
        (Some("at-32"), [dir, name]) => {
            let result = int_80::unlinkat(&directory(dir)?, name)?;
            note(&mut tally, "unlinkat", result);
        }
        (Some("io-uring"), rest) => {
            let Some(mut ring) = io_uring::Ring::new()? else {
                println!("{}", serde_json::json!({ "skipped": true }));
                return Ok(());
            };
            match rest {
                [dir] => io_uring::storm(&mut tally, &mut ring, dir)?,
                [dir, name] => {
                    let at = directory(dir)?;
                    ring.delete(&mut tally, &[(at.as_raw_fd(), name, nix::libc::AT_REMOVEDIR)])?;
                }
                _ => bail!("one directory, or a directory and a name"),
            }
        }
        (Some("move"), [from, to]) => fs::rename(from, to)?,
        (Some("descend"), [top, name, levels]) => descend(&mut tally, top, name, number(levels)?)?,
        (Some("storm"), [dir, count]) => storm(&mut tally, dir, number(count)?)?,
        (Some("targets"), [dir, count]) => {
            for i in 0..number(count)? {
                note(&mut tally, RMDIR, rmdir(&dir.join(format!("v{i}"))));
            }
        }
        _ => bail!("unknown call {words:?}"),
    }
    println!("{}", serde_json::to_string(&tally)?);
    Ok(())
}

fn number(text: &Path) -> Result<u64> {
    text.to_str().and_then(|t| t.parse().ok()).with_context(|| format!("{text:?} is no number"))
}

fn note(tally: &mut Tally, call: &'static str, result: nix::Result<()>) {
    let outcome = match result {
        Ok(()) => "ok".to_owned(),
        Err(errno) => format!("{errno:?}"),
    };
    *tally.entry(call).or_default().entry(outcome).or_default() += 1;
}

/// `rmdir(3)`: the standard library makes no other call for it than [`RMDIR`].
fn rmdir(path: &Path) -> nix::Result<()> {
    fs::remove_dir(path).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))
}

/// Makes a mount namespace that no watch knows yet, with one directory in the place of another in it.
fn move_apart(mounts: &[&Path]) -> Result<()> {
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS).context("making a mount namespace")?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    if let [from, to] = mounts {
        mount(Some(*from), *to, none, MsFlags::MS_BIND, none).context("mounting")?;
    }
    Ok(())
}

fn directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).with_context(|| format!("opening {}", path.display()))
}

fn remove_dir_at(tally: &mut Tally, dir: &OwnedFd, name: &Path) {
    note(tally, "unlinkat+AT_REMOVEDIR", unlinkat(dir, name, UnlinkatFlags::RemoveDir));
}

/// Makes a chain of directories and tries to remove a file as a directory in the last.
fn descend(tally: &mut Tally, top: &Path, name: &Path, levels: u64) -> Result<()> {
    chdir(top)?;
    for _ in 0..levels {
        fs::create_dir(name)?;
        chdir(name)?;
    }
    fs::write("leaf", "")?;
    let here = directory(Path::new("."))?;
    remove_dir_at(tally, &here, Path::new("leaf"));
    Ok(())
}

/// A deletion as busy as it gets, with some failures in it: what succeeds and what fails is
/// decided here and counted here.
fn storm(tally: &mut Tally, dir: &Path, count: u64) -> Result<()> {
    let at = directory(dir)?;
    let absolute: PathBuf = dir.join("x");
    for i in 0..count {
        let name = Path::new("f");
        drop(fs::File::create(dir.join(name))?);
        note(tally, "unlinkat", unlinkat(&at, name, UnlinkatFlags::NoRemoveDir));
        if i % 4 == 0 {
            note(tally, "unlinkat", unlinkat(&at, name, UnlinkatFlags::NoRemoveDir));
        }
        if i % 16 == 0 {
            fs::create_dir(&absolute)?;
            note(tally, "unlinkat", unlinkat(&at, Path::new("x"), UnlinkatFlags::NoRemoveDir));
            note(tally, RMDIR, rmdir(&absolute));
        }
        if i % 64 == 0 {
            note(tally, "umount2", umount2(&absolute, MntFlags::empty()));
            note(tally, UNLINK, unlink(&absolute));
        }
    }
    Ok(())
}
