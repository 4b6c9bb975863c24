//! The workloads that repeat one call.

use std::{
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat, renameat},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::stat::{Mode, SFlag, mkdirat, mknodat},
    unistd::{UnlinkatFlags, getppid, syncfs, unlinkat},
};

use crate::Done;
use crate::count::Call;

/// Below the directory, which is made, so that each thread has its own.
pub(crate) fn unlinkat_files(dir: &Path, calls: u64, portion: u64) -> Result<Done> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let at = directory(dir)?;
    let mut done = Done::default();
    let mut left = calls;
    while left > 0 {
        let now = left.min(portion.max(1));
        let names: Vec<PathBuf> = (0..now).map(|i| format!("file-{i}").into()).collect();
        for name in &names {
            make_file(&at, name)?;
        }
        // What is still to be written would be written while the calls are timed.
        syncfs(&at).with_context(|| format!("cannot sync {}", dir.display()))?;
        let count = &mut done.count;
        done.time.time(|| {
            for name in &names {
                let result = unlinkat(&at, name, UnlinkatFlags::NoRemoveDir);
                count.note(Call::Unlinkat, result).with_context(|| {
                    format!("cannot delete {} in {}", name.display(), dir.display())
                })?;
            }
            anyhow::Ok(())
        })??;
        left -= now;
    }
    Ok(done)
}

/// Removes volumes beside `dir`, each with `portion` directories in it.
pub(crate) fn remove_volumes(dir: &Path, thread: u64, calls: u64, portion: u64) -> Result<Done> {
    let above = dir.parent().with_context(|| format!("{} is above all", dir.display()))?;
    let above = directory(above)?;
    let names: Vec<PathBuf> = (0..portion).map(|i| format!("d{i}").into()).collect();
    let mut done = Done::default();
    for number in 0..calls / (portion + 1) {
        let volume = PathBuf::from(format!("volume-{thread}-{number}"));
        make_directory(&above, &volume)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let at = openat(&above, &volume, flags, Mode::empty())
            .with_context(|| format!("cannot open {}", volume.display()))?;
        names.iter().try_for_each(|name| make_directory(&at, name))?;
        let count = &mut done.count;
        done.time.time(|| {
            let inside = names.iter().map(|name| (&at, name));
            for (at, name) in inside.chain([(&above, &volume)]) {
                let result = unlinkat(at, name, UnlinkatFlags::RemoveDir);
                count
                    .note(Call::UnlinkatRemoveDir, result)
                    .with_context(|| format!("cannot remove {}", name.display()))?;
            }
            anyhow::Ok(())
        })??;
    }
    Ok(done)
}

/// Fails each time: something is mounted on `mounted`.
pub(crate) fn remove_mount_point(dir: &Path, calls: u64) -> Result<Done> {
    let at = directory(dir)?;
    let name = Path::new("mounted");
    let mut done = Done::default();
    let count = &mut done.count;
    done.time.time(|| {
        for _ in 0..calls {
            let result = unlinkat(&at, name, UnlinkatFlags::RemoveDir);
            if count.note(Call::UnlinkatRemoveDir, result) != Err(Errno::EBUSY) {
                bail!("{} is no mount point: mount a tmpfs on it", dir.join(name).display());
            }
        }
        Ok(())
    })??;
    Ok(done)
}

/// Deletes nothing and pays for being on the same machine.
pub(crate) fn get_parent(calls: u64) -> Result<Done> {
    let mut done = Done::default();
    let count = &mut done.count;
    done.time.time(|| {
        for _ in 0..calls {
            // The call, and nothing that the compiler could leave out.
            let parent = std::hint::black_box(getppid());
            let _ = count.note(Call::Getppid, Ok(parent));
        }
    })?;
    Ok(done)
}

/// Renames one file to and fro, which never crosses a directory.
pub(crate) fn rename_file(dir: &Path, calls: u64) -> Result<Done> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let at = directory(dir)?;
    let (mut from, mut to) = (Path::new("here"), Path::new("there"));
    make_file(&at, from)?;
    let mut done = Done::default();
    let count = &mut done.count;
    done.time.time(|| {
        for _ in 0..calls {
            count.note(Call::Renameat, renameat(&at, from, &at, to)).context("renaming")?;
            std::mem::swap(&mut from, &mut to);
        }
        anyhow::Ok(())
    })??;
    let removed = unlinkat(&at, from, UnlinkatFlags::NoRemoveDir);
    done.count.note(Call::Unlinkat, removed).context("removing what was renamed")?;
    Ok(done)
}

/// Starts a program that ends at once, and waits for it.
pub(crate) fn execute(calls: u64) -> Result<Done> {
    let mut done = Done::default();
    let count = &mut done.count;
    done.time.time(|| {
        for _ in 0..calls {
            let status = Command::new("/bin/true").status().context("starting /bin/true")?;
            if !status.success() {
                bail!("/bin/true: {status}");
            }
            let _ = count.note(Call::Execve, Ok(()));
        }
        anyhow::Ok(())
    })??;
    Ok(done)
}

/// Mounts and unmounts a tmpfs.
pub(crate) fn unmount(dir: &Path, calls: u64) -> Result<Done> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut done = Done::default();
    let none = None::<&str>;
    for _ in 0..calls {
        mount(Some("bench"), dir, Some("tmpfs"), MsFlags::empty(), none)
            .with_context(|| format!("cannot mount a tmpfs on {}", dir.display()))?;
        let result = done.time.time(|| umount2(dir, MntFlags::empty()))?;
        done.count
            .note(Call::Umount2, result)
            .with_context(|| format!("cannot unmount {}", dir.display()))?;
    }
    Ok(done)
}

/// Shows when a tracer began to count: of the calls here, it counts only the last ones.
pub(crate) fn tick(dir: &Path, calls: u64) -> Result<Done> {
    let at = directory(dir)?;
    let mut done = Done::default();
    for _ in 0..calls {
        done.began_ns.push(crate::now_ns()?);
        let result = unlinkat(&at, "missing", UnlinkatFlags::NoRemoveDir);
        if done.count.note(Call::Unlinkat, result) != Err(Errno::ENOENT) {
            bail!("{} was not expected to exist", dir.join("missing").display());
        }
        sleep(Duration::from_millis(1));
    }
    Ok(done)
}

/// Opens a directory.
pub(crate) fn directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).with_context(|| format!("cannot open {}", path.display()))
}

fn make_directory(at: &OwnedFd, name: &Path) -> Result<()> {
    mkdirat(at, name, Mode::S_IRWXU).with_context(|| format!("cannot create {}", name.display()))
}

/// Makes an empty file, without the detour of opening it.
pub(crate) fn make_file(at: &OwnedFd, name: &Path) -> Result<()> {
    mknodat(at, name, SFlag::S_IFREG, Mode::S_IRUSR | Mode::S_IWUSR, 0)
        .with_context(|| format!("cannot create {}", name.display()))
}
