//! What each call does: the system calls, what is believed after them, and what goes wrong.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use nix::errno::Errno;
use tonic::Status;

use crate::{
    fault::{Control, Fault, Order},
    in_flight::{InFlight, Lock},
    klog, mounts,
    state::State,
    volume::{self, Backing},
};

/// What the driver was started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The driver's name, as in a volume's `driver`.
    pub name: String,
    /// The node's id, as the driver gives it to kubelet.
    pub node_id: String,
    /// Where `state.json` and the volumes are.
    pub state: PathBuf,
    /// The file that says what is to go wrong.
    pub control: Option<PathBuf>,
    /// Whether volumes are staged before they are published.
    pub stage: bool,
}

/// A driver: what it believes, and what is to go wrong with it.
#[derive(Debug)]
pub struct Driver {
    settings: Settings,
    control: Control,
    state: Mutex<State>,
    in_flight: InFlight,
}

/// How a call ends that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// With an answer.
    Now,
    /// Without any.
    Never,
}

impl Driver {
    /// A driver that believes what it believed when it ended.
    ///
    /// # Errors
    ///
    /// When its directory cannot be made, its state cannot be read, or the fault is not a known one.
    pub fn new(settings: Settings) -> Result<Self> {
        let volumes = settings.state.join("volumes");
        fs::create_dir_all(&volumes)
            .with_context(|| format!("cannot make {}", volumes.display()))?;
        let control = Control::new(settings.control.clone());
        control.read()?;
        let state = State::load(settings.state.join("state.json"), &settings.node_id)?;
        Ok(Self { settings, control, state: Mutex::new(state), in_flight: InFlight::default() })
    }

    /// What it was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Mounts a volume where it is bound from later.
    ///
    /// # Errors
    ///
    /// As the specification names them, and `FailedPrecondition` when it is not known what is to go
    /// wrong; so with all that follow.
    pub fn stage(
        &self,
        handle: &str,
        staging: &str,
        attributes: &HashMap<String, String>,
    ) -> Result<(), Status> {
        let path = absolute("staging target path", staging)?;
        let backing = Backing::of(&self.volumes(), handle, attributes)?;
        self.order()?;
        let _lock = self.lock(handle)?;
        if !mounted(path)? {
            attach(&backing, path, false)?;
        }
        let directory = volume::directory(&self.volumes(), handle)?;
        self.state().stage(handle, &directory, staging).map_err(unwritten)
    }

    /// Unmounts it there.
    ///
    /// # Errors
    ///
    /// As the specification names them.
    pub fn unstage(&self, handle: &str, staging: &str) -> Result<(), Status> {
        let path = absolute("staging target path", staging)?;
        volume::directory(&self.volumes(), handle)?;
        self.order()?;
        let _lock = self.lock(handle)?;
        if !self.state().is_staged(handle, staging) {
            klog::info(format!("volume {handle:?} is not staged at {staging:?}, nothing to do"));
            return Ok(());
        }
        if let [target, ..] = self.state().published(handle).as_slice() {
            let text = format!("volume {handle:?} is still published at {target:?}");
            return Err(Status::failed_precondition(text));
        }
        // The directory is kubelet's, which made it.
        if mounted(path)? {
            mounts::unmount(path).map_err(|error| failed("umount", path, &error))?;
        }
        self.state().unstage(handle, staging).map_err(unwritten)
    }

    /// Mounts a volume where a pod wants it: from where it is staged, if it is to be.
    ///
    /// # Errors
    ///
    /// As the specification names them.
    pub fn publish(
        &self,
        handle: &str,
        staging: &str,
        target: &str,
        read_only: bool,
        attributes: &HashMap<String, String>,
    ) -> Result<(), Status> {
        let path = absolute("target path", target)?;
        let mut backing = Backing::of(&self.volumes(), handle, attributes)?;
        self.order()?;
        let _lock = self.lock(handle)?;
        if self.settings.stage {
            if !self.state().is_staged(handle, staging) {
                let text = format!("volume {handle:?} is not staged at {staging:?}");
                return Err(Status::failed_precondition(text));
            }
            backing = Backing::Directory(staging.into());
        }
        // A second time is no second mount: kubelet asks again when it did not hear the answer.
        if !mounted(path)? {
            attach(&backing, path, read_only)?;
        }
        let directory = volume::directory(&self.volumes(), handle)?;
        self.state().publish(handle, &directory, target).map_err(unwritten)
    }

    /// Unmounts it there, or does what is to go wrong.
    ///
    /// # Errors
    ///
    /// As the specification names them, and those of the fault.
    pub fn unpublish(&self, handle: &str, target: &str) -> Result<Answered, Status> {
        let path = absolute("target path", target)?;
        volume::directory(&self.volumes(), handle)?;
        let order = self.order()?;
        let lock = self.lock(handle)?;
        match order.fault(handle) {
            Fault::None | Fault::Forget => self.unpublish_what_is_known(handle, path, target)?,
            Fault::NotFound => {
                return Err(Status::not_found(format!("volume id {handle:?} does not exist")));
            }
            Fault::Internal => {
                return Err(Status::internal(format!("volume {handle:?} cannot be detached")));
            }
            Fault::Aborted => return Err(in_progress(handle)),
            Fault::Hang => {
                lock.keep();
                return Ok(Answered::Never);
            }
            // Still believed to be published, so that kubelet's next attempt is answered likewise.
            Fault::Elsewhere => mounts::unmount_elsewhere(path)
                .map_err(|error| failed("umount in a namespace of its own", path, &error))?,
            Fault::OnlyUnmount if !mounted(path)? => (),
            Fault::OnlyUnmount => {
                mounts::unmount(path).map_err(|error| failed("umount", path, &error))?;
            }
            Fault::NotIdempotent => self.detach(handle, path, target)?,
        }
        Ok(Answered::Now)
    }

    /// What csi-driver-host-path does (`pkg/hostpath/nodeserver.go`, `NodeUnpublishVolume`): nothing,
    /// and answers OK, where it does not believe to have published.
    fn unpublish_what_is_known(
        &self,
        handle: &str,
        path: &Path,
        target: &str,
    ) -> Result<(), Status> {
        if !self.state().is_published(handle, target) {
            klog::info(format!("volume {handle:?} is not published at {target:?}, nothing to do"));
            Ok(())
        } else if mounted(path)? {
            self.detach(handle, path, target)
        } else {
            self.remove(handle, path, target)
        }
    }

    fn detach(&self, handle: &str, path: &Path, target: &str) -> Result<(), Status> {
        mounts::unmount(path).map_err(|error| failed("umount", path, &error))?;
        self.remove(handle, path, target)
    }

    fn remove(&self, handle: &str, path: &Path, target: &str) -> Result<(), Status> {
        mounts::remove_directory(path).map_err(|error| as_go_says("remove", path, &error))?;
        self.state().unpublish(handle, target).map_err(unwritten)
    }

    /// What is to go wrong now; what is to be forgotten is.
    fn order(&self) -> Result<Order, Status> {
        let read = self.control.read();
        let order = read.map_err(|error| Status::failed_precondition(error.to_string()))?;
        if order.fault == Fault::Forget {
            let forgotten = self.state().forget(order.volume.as_deref()).map_err(unwritten)?;
            if forgotten > 0 {
                klog::info(format!("forgot {forgotten} publications, as ordered"));
            }
        }
        Ok(order)
    }

    fn lock(&self, handle: &str) -> Result<Lock, Status> {
        self.in_flight.lock(handle).ok_or_else(|| in_progress(handle))
    }

    /// Never held during a system call that may hang.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volumes(&self) -> PathBuf {
        self.settings.state.join("volumes")
    }
}

fn attach(backing: &Backing, target: &Path, read_only: bool) -> Result<(), Status> {
    match backing {
        Backing::Directory(source) => {
            fs::create_dir_all(source).and_then(|()| mounts::bind(source, target, read_only))
        }
        Backing::Memory => mounts::memory(target, read_only),
        Backing::Fuse => mounts::fuse(target),
    }
    .map_err(|error| failed("mount", target, &error))
}

fn mounted(path: &Path) -> Result<bool, Status> {
    mounts::is_mounted(path).map_err(|error| as_go_says("stat", path, &error))
}

fn absolute<'a>(what: &str, path: &'a str) -> Result<&'a Path, Status> {
    let absolute = Path::new(path);
    let wrong = || Status::invalid_argument(format!("{what} {path:?} is not an absolute path"));
    absolute.is_absolute().then_some(absolute).ok_or_else(wrong)
}

/// As nearly all drivers say it, which are written in Go (`os.PathError`).
fn as_go_says(call: &str, path: &Path, error: &io::Error) -> Status {
    let errno = error.raw_os_error().map(Errno::from_raw);
    let words = errno.map_or_else(|| error.to_string(), |errno| errno.desc().to_lowercase());
    Status::internal(format!("{call} {}: {words}", path.display()))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Status {
    Status::internal(format!("{what} {path:?}: {error}"))
}

#[allow(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn unwritten(error: anyhow::Error) -> Status {
    Status::internal(format!("{error:#}"))
}

fn in_progress(handle: &str) -> Status {
    let text = format!("an operation with the given volume ID {handle:?} is already in progress");
    Status::aborted(text)
}
