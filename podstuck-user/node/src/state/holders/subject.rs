//! The object of a question: found first by the text of the mount tables, then by `statx`.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

use super::{
    process::look,
    relation::{Node, Wanted},
};
use crate::state::namespaces;
use podstuck_confine::proc;
use podstuck_model::{
    holder::{About, Subject},
    mounts::Mounts,
    path::JsonPath,
};

/// The mount, file or device in question; an error says why it was not found.
pub(super) fn find(about: &About, node: &Node) -> Result<(Subject, Wanted), String> {
    match about {
        About::Device(device) => {
            let wanted = Wanted::device(node, *device);
            let mounted = wanted.relevant.len();
            let what = format!("device {device}, mounted {mounted} times on this node");
            let path = JsonPath(device.to_string().into());
            let device = device.to_string();
            Ok((Subject { path, what, device, mount_id: None, namespace: None }, wanted))
        }
        About::Mount { pid, namespace, path } => {
            // The caller's own mount table, if its process is still in this namespace.
            let own =
                proc::mounts(*pid).filter(|_| namespaces::of_process(*pid) == Some(*namespace));
            let table = own.as_ref().or(node.tables.get(namespace).map(|table| &**table));
            let found = table.and_then(|table| at(table, *namespace, path, node));
            found.ok_or_else(|| "it is no longer a mount point".into())
        }
        About::Path(path) => {
            let own = namespaces::of_process(std::process::id());
            let first = own.and_then(|own| Some((own, node.tables.get(&own)?)));
            let others = node.tables.iter().map(|(namespace, table)| (*namespace, table));
            let mut tables = first.into_iter().chain(others);
            let mounted = tables.find_map(|(namespace, table)| at(table, namespace, path, node));
            mounted.map_or_else(|| object(path, node), Ok)
        }
    }
}

fn at(table: &Mounts, namespace: u32, path: &JsonPath, node: &Node) -> Option<(Subject, Wanted)> {
    let mount = table.top(&path.0)?;
    let subject = Subject {
        path: path.clone(),
        what: format!("mount of {}", mount.describe()),
        device: mount.device.to_string(),
        mount_id: Some(mount.id),
        namespace: Some(namespace),
    };
    Some((subject, Wanted::mount(node, namespace, mount.id)?))
}

/// A file or directory that is no mount point.
fn object(path: &JsonPath, node: &Node) -> Result<(Subject, Wanted), String> {
    let Some((mount, device, inode)) = look(&path.0) else {
        let mounts = node.count();
        return Err(format!(
            "it does not exist in this mount namespace, and none of {mounts} mounts has this path"
        ));
    };
    // Where the path leads to through symbolic links may be a mount point, which was not found by
    // its text.
    let root = node.all().find(|(_, _, m)| m.id == mount).filter(|_| is_root(&path.0));
    if let Some((namespace, table, mount)) = root {
        let there = JsonPath(mount.point.clone());
        return at(table, namespace, &there, node).ok_or_else(|| "another mount covers it".into());
    }
    let subject = Subject {
        path: path.clone(),
        what: format!("inode {inode} of device {device}"),
        device: device.to_string(),
        mount_id: None,
        namespace: None,
    };
    Ok((subject, Wanted::file(node, device, inode, mount)))
}

fn is_root(path: &Path) -> bool {
    let seen = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
    seen.is_ok_and(|seen| seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
