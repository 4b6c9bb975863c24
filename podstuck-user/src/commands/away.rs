//! Leaves the directory that the tool was started in: in the volume in question, the tool itself, and every helper
//! that it starts, would keep it busy.

use std::{
    env,
    path::{self, PathBuf},
};

use anyhow::{Context, Result};

use crate::outcome::Failure;
use crate::{
    cli::{Api, Node},
    model::path::safe_path,
};

/// Makes the paths absolute, which keeps their meaning, and changes to `/`.
pub(super) fn leave<'a>(paths: impl IntoIterator<Item = &'a mut PathBuf>) -> Result<(), Failure> {
    paths.into_iter().try_for_each(make_absolute).map_err(Failure::Usage)?;
    env::set_current_dir("/").context("changing to /").map_err(Failure::CannotRun)
}

/// The paths in the options that all commands have.
pub(super) fn of_node(node: &mut Node) -> impl Iterator<Item = &mut PathBuf> {
    node.kubelet_root.iter_mut().chain([&mut node.host_root])
}

/// The kubeconfig file of `--api`, if one is given.
pub(super) fn of_api(api: &mut Api) -> Option<&mut PathBuf> {
    match api {
        Api::File(path) => Some(path),
        Api::Auto | Api::Never => None,
    }
}

/// By its text alone: its file system may be dead.
fn make_absolute(path: &mut PathBuf) -> Result<()> {
    *path =
        path::absolute(&*path).with_context(|| format!("making {:?} absolute", safe_path(path)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_means_what_it_meant() {
        let here = env::current_dir().unwrap();
        let mut node = Node { kubelet_root: vec!["k/../l".into()], host_root: "/host".into() };
        of_node(&mut node).try_for_each(make_absolute).unwrap();
        assert_eq!(node.kubelet_root, [here.join("k/../l")]);
        assert_eq!(node.host_root, PathBuf::from("/host"));
        assert!(make_absolute(&mut PathBuf::new()).is_err());
    }
}
