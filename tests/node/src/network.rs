//! The pods' network: a plugin of ours, which gives an address that is not reachable, and fails on demand.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::json;

use crate::place::Place;

/// Where Debian's `containernetworking-plugins` puts them.
pub(crate) const PLUGINS: &str = "/usr/lib/cni";
/// Comes with every runtime, for the sandbox's own loopback device.
pub(crate) const LOOPBACK: &str = "loopback";
const OURS: &str = "podstuck-test";

/// Where the runtime finds plugins.
pub(crate) fn programs(place: &Place) -> PathBuf {
    place.at("cni-bin")
}

/// Where it finds what they are to do.
pub(crate) fn configuration(place: &Place) -> PathBuf {
    place.at("cni")
}

/// As a file in it has the name of a pod, the plugin fails to take down this pod's network.
pub(crate) fn failing(place: &Place) -> PathBuf {
    place.at("cni-fails")
}

/// Writes the plugin and its configuration.
pub(crate) fn make(place: &Place) -> Result<()> {
    for folder in [programs(place), configuration(place), failing(place)] {
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let loopback = programs(place).join(LOOPBACK);
    symlink(Path::new(PLUGINS).join(LOOPBACK), &loopback)
        .with_context(|| format!("linking {}", loopback.display()))?;
    program(&programs(place).join(OURS), &plugin(&failing(place)))?;
    let plugins = json!([{ "type": LOOPBACK }, { "type": OURS }]);
    let list = json!({ "cniVersion": "0.4.0", "name": "podstuck", "plugins": plugins });
    fs::write(configuration(place).join("10-podstuck.conflist"), list.to_string())
        .context("describing the network")
}

/// Writes a script.
pub(crate) fn program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("writing {}", path.display()))
}

/// As the CNI specification (SPEC.md, version 0.4.0) wants it.
fn plugin(failing: &Path) -> String {
    let failing = failing.display();
    format!(
        r#"#!/bin/sh
pod=${{CNI_ARGS##*K8S_POD_NAME=}}
pod=${{pod%%;*}}
case $CNI_COMMAND in
ADD)
    echo '{{"cniVersion":"0.4.0","interfaces":[{{"name":"eth0","sandbox":"'"$CNI_NETNS"'"}}],'
    echo '"ips":[{{"version":"4","address":"192.0.2.7/32","interface":0}}]}}'
    ;;
DEL)
    test -e "{failing}/$pod" || exit 0
    echo '{{"cniVersion":"0.4.0","code":11,"msg":"the agent of the network does not answer"}}'
    exit 1
    ;;
VERSION)
    echo '{{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}}'
    ;;
esac
"#
    )
}
