//! Processes in the pod's control groups that do not end.

use std::ffi::OsString;

use anyhow::Result;

use super::{Pod, Staged, script};
use crate::lab::{Unsupported, cgroup};

/// The container's group: an id as the runtimes give them.
const CONTAINER: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

/// Arguments of all scripts: the groups of the pod, one in each hierarchy.
const BEGIN: &str = r#"
set -e
groups="$*"
child=
remove() {
    for group in $groups; do
        for part in "$group"/* "$group" "${group%/*}"; do
            if [ -d "$part" ]; then rmdir "$part" 2>/dev/null || true; fi
        done
    done
}
in_groups() {
    for group in $groups; do echo 0 >"$group/$below/cgroup.procs"; done
    exec "$@"
}
"#;

/// Somebody who was put into the pod's own group, where no container is left.
pub(super) fn stays(pod: &Pod) -> Result<Staged> {
    let groups = groups(pod)?;
    let script = r#"
below=.
end() { kill -9 $child 2>/dev/null || true; wait $child 2>/dev/null || true; remove; }
trap end EXIT
mkdir -p $groups
in_groups sleep 1000000 </dev/null >/dev/null 2>&1 &
child=$!
until [ "$(cat /proc/$child/comm)" = sleep ]; do sleep 0.02; done
echo ready
cat >/dev/null || true
"#;
    script::stage(&format!("{BEGIN}{script}"), &groups)
}

/// A container that was killed while its pod's group is frozen, by the freezer of version 1.
pub(super) fn frozen(pod: &Pod) -> Result<Staged> {
    let groups = groups(pod)?;
    if !groups.iter().any(|group| group.to_string_lossy().contains("/freezer/")) {
        let message = "this machine has no freezer of control groups version 1, and with version 2 a \
                       frozen process dies when it is killed";
        return Err(Unsupported(message.into()).into());
    }
    let script = format!(
        r#"
below={CONTAINER}
for group in $groups; do case $group in */freezer/*) state=$group/freezer.state;; esac; done
end() {{ echo THAWED >$state; kill -9 $child 2>/dev/null || true; wait $child 2>/dev/null || true; remove; }}
trap end EXIT
for group in $groups; do mkdir -p $group/$below; done
in_groups sleep 1000000 </dev/null >/dev/null 2>&1 &
child=$!
until [ "$(cat /proc/$child/comm)" = sleep ]; do sleep 0.02; done
echo FROZEN >$state
until grep -q FROZEN $state; do sleep 0.02; done
kill -9 $child
echo ready
cat >/dev/null || true
"#
    );
    script::stage(&format!("{BEGIN}{script}"), &groups)
}

/// A container that was killed while it waits for a frozen file system.
pub(super) fn unkillable(pod: &Pod) -> Result<Staged> {
    let mut arguments = vec![OsString::from(pod.root.join("frozen"))];
    arguments.extend(groups(pod)?);
    let script = format!(
        r#"
below={CONTAINER}
end() {{ fsfreeze --unfreeze "$disk" 2>/dev/null || true; wait 2>/dev/null || true; remove; }}
trap end EXIT
for group in $groups; do mkdir -p $group/$below; done
mkdir -p "$disk"
truncate -s 16M "$disk.img"
mkfs.ext4 -q -F "$disk.img"
mount -o loop "$disk.img" "$disk"
fsfreeze --freeze "$disk"
in_groups touch "$disk/file" </dev/null >/dev/null 2>&1 &
child=$!
until grep -q '^State:.D' /proc/$child/status && grep -q touch /proc/$child/comm; do sleep 0.02; done
kill -9 $child
echo ready
cat >/dev/null || true
"#
    );
    let begin = BEGIN.replacen("groups=\"$*\"", "disk=$1; shift; groups=\"$*\"", 1);
    script::stage(&format!("{begin}{script}"), &arguments)
}

fn groups(pod: &Pod) -> Result<Vec<OsString>> {
    let groups = cgroup::of_pod(pod);
    if groups.is_empty() {
        return Err(Unsupported("this machine has no control groups to be used".into()).into());
    }
    Ok(groups.into_iter().map(OsString::from).collect())
}
