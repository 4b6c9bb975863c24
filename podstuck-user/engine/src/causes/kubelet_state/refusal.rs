//! Why kubelet does not continue, by an error of its own.

use std::path::Path;

use crate::{
    causes::kubelet_state::suspect::Suspect,
    model::{
        call::Outcome,
        csi,
        mounted::Mounted,
        node::{PodState, VolumeState},
        said::{self, Answered, Said},
        shell::is_object_name,
    },
};

/// Why kubelet fails, and what helps.
pub(super) struct Refusal<'a> {
    /// What the error means
    pub(super) means: &'static str,
    pub(super) way: Way<'a>,
}

/// What lets kubelet continue.
pub(super) enum Way<'a> {
    /// kubelet's memory is wrong.
    Restart(&'static str),
    /// kubelet takes an empty directory for a mount point.
    NotMounted(&'a VolumeState),
    /// kubelet leaves this mounted.
    Mounted(&'a Mounted),
    /// The record is wrong.
    Record,
    /// The image of this ended container of Docker is gone.
    NoImage(&'a str),
    /// Docker answers kubelet's question about this container with an error, which dockerd's log has.
    Untold(&'a str, &'a Said),
    /// The runtime fails to remove this container, which has ended.
    Removal(&'a str),
    /// The runtime answers each request to stop the pod with an error.
    Answer,
    /// Nothing of the pod is left on the node.
    Bare,
    /// kubelet's own call on its own files fails.
    Own,
    /// kubelet does not reach a driver of the pod's devices.
    Driver(String),
    /// A driver of the pod's devices fails; its name, if the error has it.
    DriverFails(Option<String>),
}

/// The refusal behind an error of kubelet's own.
pub(super) fn refusal<'a>(said: &'a Said, suspect: &Suspect<'a>) -> Option<Refusal<'a>> {
    let text = said.text.as_str();
    let (has, record) = (|words: &str| text.contains(words), suspect.record);
    if let Some(mount) = left_mounted(said, suspect.pod) {
        return Some(Refusal {
            means: "kubelet gives up with an error of its own, and the volume stays mounted: the \
                kernel refuses no call, and no process is in the way.",
            way: Way::Mounted(mount),
        });
    }
    if let Some(mount) = closed(said, suspect.pod) {
        return Some(Refusal {
            means: "kubelet looks into the mounted directory before it unmounts it, and may not: the file \
                system's server refuses root the search of that directory, as an NFS server with root_squash \
                does, or an SMB server whose password was changed. The server answers, and no process is in the way.",
            way: Way::Mounted(mount),
        });
    }
    if let Some(mount) = taken_for_gone(text, suspect.pod) {
        return Some(Refusal {
            means: "The file system's server answers kubelet's stat of the mounted directory as if that did not exist: \
                kubelet then treats the volume as unmounted, and leaves it mounted. No process is in the way.",
            way: Way::Mounted(mount),
        });
    }
    if let Some(volume) = not_mounted(text, suspect.pod) {
        return Some(Refusal {
            means: "kubelet treats the volume's directory as a mount point and unmounts it at \
                each attempt, but nothing is mounted there, as after a reboot: `umount` fails, \
                and kubelet does not continue.",
            way: Way::NotMounted(volume),
        });
    }
    if has("mapPath is empty") || has("globalMapPath is empty") || has("volumeMapPath is empty") {
        return Some(Refusal {
            means: "kubelet's memory has a raw block volume without its map path, as after a \
                restart or a reboot, and kubelet gives up before it examines anything.",
            way: Way::Restart("it finds the volume's map again while the volume's driver runs"),
        });
    }
    if nothing_is_left(text, suspect.pod) {
        return Some(Refusal {
            means: "kubelet's memory has a CSI volume of the pod as mounted, and each attempt \
                fails because kubelet's own file about the volume (vol_data.json) is gone, with \
                the volume's directory: the volume is torn down already.",
            way: Way::Restart("it finds no volume of that name in the pod's directory"),
        });
    }
    // The claims' state file in kubelet's root (pkg/kubelet/cm/dra, `syncToCheckpoint`).
    if has("unprepare dynamic resources: checkpoint ") {
        return Some(Refusal {
            means: "kubelet has had the pod's devices released, and fails to write that into its own file.",
            way: Way::Own,
        });
    }
    let unregistered = has("list of registered DRA");
    if has("unprepare dynamic resources") || has("NodeUnprepareResource") || unregistered {
        let is_away = unregistered || has("not registered") || has("dial unix");
        if is_away && let Some(driver) = driver(text) {
            return Some(Refusal {
                means: "Before kubelet unmounts anything, the driver of the pod's devices must \
                    release them, and that driver is not registered with kubelet, or does not accept its calls.",
                way: Way::Driver(driver),
            });
        }
        let is_unmade = record.is_some_and(|record| !record.unmade_claims.is_empty());
        if is_unmade || has("not created yet") {
            return Some(Refusal {
                means: "kubelet releases the pod's devices before it unmounts anything, and \
                    fails because the pod's record names no ResourceClaim for one of its claims. \
                    No ResourceClaim is created any more: the pod is to be deleted.",
                way: Way::Record,
            });
        }
        return Some(Refusal {
            means: "Before kubelet unmounts anything, the driver of the pod's devices must \
                release them, and that fails.",
            way: Way::DriverFails(driver(text)),
        });
    }
    if let Some(container) = without_image(text) {
        return Some(Refusal {
            means: "kubelet asks Docker for the image of each container of the pod, also of one that has ended, and that \
                image was removed: kubelet does not learn that the container has ended.",
            way: Way::NoImage(container),
        });
    }
    if let Some((container, dockerd)) = untold(text, suspect.dockerd) {
        return Some(Refusal {
            means: "kubelet asks Docker for the state of each container of the pod, also of one that was never started or has \
                ended, and Docker answers with an error of its own: kubelet does not learn the pod's state, and does \
                nothing about the deletion.",
            way: Way::Untold(container, dockerd),
        });
    }
    // `checkContainerStateTransition` in pkg/kubelet/status.
    if has("attempted illegal transition to non-terminated state") {
        return Some(Refusal {
            means: "kubelet rejects its own status update of the pod at each attempt: kubelet \
                has reported a container as ended, and its memory has that container as not \
                ended. Without that update kubelet never deletes the record.",
            way: Way::Record,
        });
    }
    let kills = ["KillContainer", "StopContainer", "Failed killing the pod"];
    let is_gone = said::is_not_found(text)
        || ["No such container", "no such container"].iter().any(|it| has(it));
    if is_gone && kills.iter().any(|word| text.contains(word)) {
        return Some(Refusal {
            means: "kubelet asks the runtime to stop a container that the runtime does not have, \
                and treats the answer as a failure.",
            way: Way::Restart("it sees that no container of the pod is left"),
        });
    }
    None
}

/// The marks of an error that is not kubelet's own: a program's status, a server's answer, a time-out, and another
/// operation than the unmount, whose prefix kubelet's log keeps.
const OF_OTHERS: [&str; 6] =
    ["exit status", "rpc error", "deadline exceeded", "timed out", "MountVolume.", "MapVolume."];

/// The mount of a volume that kubelet leaves, for an error of its own. What a call, a program or a driver returns is
/// explained by other causes.
fn left_mounted<'a>(said: &Said, pod: &'a PodState) -> Option<&'a Mounted> {
    let is_of_others = OF_OTHERS.iter().any(|words| said.text.contains(words));
    let is_of_a_call = Outcome::named_in(&said.text).is_some();
    let is_in_tree =
        said.volume.starts_with("kubernetes.io/") && !said.volume.starts_with(csi::PLUGIN);
    if said.complaint.is_some() || !is_in_tree || is_of_others || is_of_a_call {
        return None;
    }
    let its = pod.volumes.iter().filter(|volume| volume.csi.is_none());
    let mounts = its.clone().flat_map(|volume| &volume.mounts);
    // An error about a subPath names its path; kubelet's unique name of a volume ends with the volume's name.
    let is_named = |mount: &&Mounted| said.text.contains(&*mount.point.to_string_lossy());
    let by_path = mounts.filter(is_named).max_by_key(|mount| mount.point.as_os_str().len());
    let by_name = || {
        let mut its = its.filter(|volume| {
            let name = volume.path.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| said.volume.ends_with(&format!("-{name}")))
        });
        its.find_map(|volume| {
            // Below a kubelet's root that is a symbolic link, the mount table has another beginning.
            let of_pod = pod.directory.parent().and_then(|all| volume.path.strip_prefix(all).ok());
            let is_at = |it: &&Mounted| {
                it.point == volume.path || of_pod.is_some_and(|end| it.point.ends_with(end))
            };
            volume.mounts.iter().rev().find(is_at)
        })
    };
    by_path.or_else(by_name)
}

/// The mount whose directory kubelet may not search.
fn closed<'a>(said: &Said, pod: &'a PodState) -> Option<&'a Mounted> {
    let look = said.looked.as_ref().filter(|look| look.outcome.name() == "EACCES")?;
    pod.mount_of(&look.path)
}

/// The mount of a volume of kubelet's own plugins that does not exist according to kubelet's `stat`.
fn taken_for_gone<'a>(text: &str, pod: &'a PodState) -> Option<&'a Mounted> {
    let (before, _) = text.split_once(": no such file or directory")?;
    let (_, path) = before.rsplit_once("stat ")?;
    let its = pod.volumes.iter().filter(|volume| volume.csi.is_none());
    its.flat_map(|volume| volume.mounts.iter().rev()).find(|it| it.point == Path::new(path))
}

/// Whether kubelet misses its own file about a CSI volume whose directory is gone.
fn nothing_is_left(text: &str, pod: &PodState) -> bool {
    let gone = || {
        let (_, rest) = text.rsplit_once("open ")?;
        let (file, _) = rest.split_once("/vol_data.json: no such file or directory")?;
        let path = Path::new(file);
        path.starts_with(&pod.directory).then_some(path)
    };
    // Raw block volumes have that file elsewhere.
    gone().is_some_and(|path| pod.volumes.iter().all(|volume| volume.path != path))
}

/// The volume that kubelet cannot unmount because nothing is mounted there, by the errors of util-linux and busybox.
fn not_mounted<'a>(text: &str, pod: &'a PodState) -> Option<&'a VolumeState> {
    let (_, rest) = text.split_once("Unmounting arguments: ")?;
    let (arguments, output) = rest.split_once("Output: umount: ")?;
    let says = ["not mounted", "no mount point specified", "Invalid argument", "not found"];
    if !says.iter().any(|words| output.contains(words)) {
        return None;
    }
    let is_its = |volume: &&VolumeState| {
        arguments.split_whitespace().next_back().is_some_and(|it| volume.path == Path::new(it))
    };
    let its = pod.volumes.iter().find(is_its)?;
    (its.mounts.is_empty() && its.csi.is_none()).then_some(its)
}

/// The container of Docker whose image is gone (pkg/kubelet/dockershim/libdocker).
fn without_image(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("unable to inspect docker image ")?;
    let (_, rest) = rest.split_once("while inspecting docker container ")?;
    rest.contains("no such image").then_some(())?;
    let id = rest.trim_start_matches(['\\', '"']).split(['\\', '"', ':', ' ']).next()?;
    let is_hex = id.bytes().all(|b| b.is_ascii_hexdigit());
    (is_hex && !id.is_empty()).then_some(id)
}

/// The container whose state Docker does not tell, and dockerd's message about kubelet's request (moby,
/// `makeHTTPHandler` in api/server/server.go), if kubelet's error is that answer.
fn untold<'a>(text: &str, dockerd: Option<&'a Said>) -> Option<(&'a str, &'a Said)> {
    let said = dockerd?;
    let (request, error) = said.text.split_once(" returned error: ")?;
    let path = request.strip_prefix("Handler for GET ")?.strip_suffix("/json")?;
    let is_answer =
        said::answered(text) == Some(Answered::Docker) && text.contains(error.trim_end());
    // Docker does not have it, and says so: its state is known.
    let is_gone = error.to_lowercase().starts_with("no such container");
    Some((said::container_id(path)?, said)).filter(|_| is_answer && !is_gone && !error.is_empty())
}

/// `driver NAME`, or `driver name NAME`, or a path in the driver's own directory below kubelet's `plugins`.
fn driver(text: &str) -> Option<String> {
    let of_path = text.rsplit_once("/plugins/").and_then(|(_, rest)| rest.split_once('/'));
    if let Some((name, _)) = of_path.filter(|(name, _)| name.contains('.') && is_object_name(name))
    {
        return Some(name.to_owned());
    }
    let words: Vec<&str> =
        text.split([' ', ',', ':', '"', '\\']).filter(|it| !it.is_empty()).collect();
    let names = words.windows(2).filter(|pair| matches!(pair[0], "driver" | "name" | "plugin"));
    let mut names = names.map(|pair| pair[1]).filter(|name| name.contains('.'));
    names.find(|name| is_object_name(name)).map(str::to_owned)
}
