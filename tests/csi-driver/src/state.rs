//! What the driver believes: which volume is staged and published where.
//!
//! In a file with the fields of csi-driver-host-path's (`pkg/state/state.go`), whose empty sets are
//! `null`, as Go writes them. Every change is written before the call is answered.

use std::{
    collections::BTreeSet,
    fs, io, mem,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Paths, or nothing.
type Paths = Option<BTreeSet<String>>;

/// A volume that the driver has seen.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase")]
struct Volume {
    vol_name: String,
    #[serde(rename = "VolID")]
    vol_id: String,
    vol_path: PathBuf,
    #[serde(rename = "NodeID")]
    node_id: String,
    staged: Paths,
    published: Paths,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase")]
struct Resources {
    volumes: Vec<Volume>,
}

/// The driver's belief, and the file that keeps it.
#[derive(Debug)]
pub struct State {
    file: PathBuf,
    node: String,
    resources: Resources,
}

impl State {
    /// The state in the file; an empty one if the file does not exist.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is not such a file.
    pub fn load(file: PathBuf, node: &str) -> Result<Self> {
        let resources = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} is not a driver's state", file.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Resources::default(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        Ok(Self { file, node: node.to_owned(), resources })
    }

    /// Whether the volume is believed to be published there.
    pub fn is_published(&self, volume: &str, target: &str) -> bool {
        self.volume(volume).is_some_and(|volume| has(&volume.published, target))
    }

    /// Whether the volume is believed to be staged there.
    pub fn is_staged(&self, volume: &str, staging: &str) -> bool {
        self.volume(volume).is_some_and(|volume| has(&volume.staged, staging))
    }

    /// Where the volume is believed to be published.
    pub fn published(&self, volume: &str) -> Vec<&str> {
        let paths = self.volume(volume).and_then(|volume| volume.published.as_ref());
        paths.into_iter().flatten().map(String::as_str).collect()
    }

    /// Notes that the volume, whose files are in `path`, is published at `target`.
    ///
    /// # Errors
    ///
    /// When that cannot be written; so with all that follow.
    pub fn publish(&mut self, volume: &str, path: &Path, target: &str) -> Result<()> {
        add(&mut self.volume_mut(volume, path).published, target);
        self.save()
    }

    /// Notes that it no longer is.
    ///
    /// # Errors
    ///
    /// When that cannot be written.
    pub fn unpublish(&mut self, volume: &str, target: &str) -> Result<()> {
        for known in self.resources.volumes.iter_mut().filter(|known| known.vol_id == volume) {
            remove(&mut known.published, target);
        }
        self.save()
    }

    /// Notes that the volume is staged at `staging`.
    ///
    /// # Errors
    ///
    /// When that cannot be written.
    pub fn stage(&mut self, volume: &str, path: &Path, staging: &str) -> Result<()> {
        add(&mut self.volume_mut(volume, path).staged, staging);
        self.save()
    }

    /// Notes that it no longer is.
    ///
    /// # Errors
    ///
    /// When that cannot be written.
    pub fn unstage(&mut self, volume: &str, staging: &str) -> Result<()> {
        for known in self.resources.volumes.iter_mut().filter(|known| known.vol_id == volume) {
            remove(&mut known.staged, staging);
        }
        self.save()
    }

    /// Forgets where this volume is published, or all are; how many places that were.
    ///
    /// # Errors
    ///
    /// When that cannot be written.
    pub fn forget(&mut self, only: Option<&str>) -> Result<usize> {
        let volumes = self.resources.volumes.iter_mut();
        let forgotten = volumes
            .filter(|volume| only.is_none_or(|only| only == volume.vol_id))
            .filter_map(|volume| mem::take(&mut volume.published))
            .map(|paths| paths.len())
            .sum();
        if forgotten > 0 {
            self.save()?;
        }
        Ok(forgotten)
    }

    fn volume(&self, volume: &str) -> Option<&Volume> {
        self.resources.volumes.iter().find(|known| known.vol_id == volume)
    }

    fn volume_mut(&mut self, volume: &str, path: &Path) -> &mut Volume {
        let volumes = &mut self.resources.volumes;
        let index = volumes.iter().position(|known| known.vol_id == volume).unwrap_or_else(|| {
            volumes.push(Volume {
                vol_name: volume.to_owned(),
                vol_id: volume.to_owned(),
                vol_path: path.to_owned(),
                node_id: self.node.clone(),
                ..Volume::default()
            });
            volumes.len() - 1
        });
        &mut volumes[index]
    }

    /// By a new file, so that no reader sees half of it.
    fn save(&self) -> Result<()> {
        let new = self.file.with_extension("new");
        let text = serde_json::to_vec(&self.resources)?;
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &self.file))
            .with_context(|| format!("cannot write {}", self.file.display()))
    }
}

fn has(paths: &Paths, path: &str) -> bool {
    paths.as_ref().is_some_and(|paths| paths.contains(path))
}

fn add(paths: &mut Paths, path: &str) {
    paths.get_or_insert_default().insert(path.to_owned());
}

fn remove(paths: &mut Paths, path: &str) {
    if let Some(some) = paths {
        some.remove(path);
    }
    paths.take_if(|some| some.is_empty());
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(directory: &Path) -> State {
        State::load(directory.join("state.json"), "n1").unwrap()
    }

    fn written(directory: &Path) -> Value {
        serde_json::from_slice(&fs::read(directory.join("state.json")).unwrap()).unwrap()
    }

    #[test]
    fn what_is_published_outlives_the_driver() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        of(directory).publish("v1", Path::new("/data/v1"), "/pods/a/mount").unwrap();
        of(directory).publish("v1", Path::new("/data/v1"), "/pods/b/mount").unwrap();
        let mut state = of(directory);
        assert!(state.is_published("v1", "/pods/a/mount"));
        assert!(!state.is_published("v1", "/pods/c/mount"));
        assert!(!state.is_published("v2", "/pods/a/mount"));
        assert_eq!(state.published("v1"), ["/pods/a/mount", "/pods/b/mount"]);
        state.unpublish("v1", "/pods/a/mount").unwrap();
        assert_eq!(of(directory).published("v1"), ["/pods/b/mount"]);
    }

    #[test]
    fn the_file_is_that_of_the_driver_that_it_resembles() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let mut state = of(directory);
        state.publish("v1", Path::new("/data/v1"), "/pods/a/mount").unwrap();
        let volume = |published: Value| {
            json!({"Volumes": [{
                "VolName": "v1", "VolID": "v1", "VolPath": "/data/v1", "NodeID": "n1",
                "Staged": null, "Published": published,
            }]})
        };
        assert_eq!(written(directory), volume(json!(["/pods/a/mount"])));
        state.unpublish("v1", "/pods/a/mount").unwrap();
        assert_eq!(written(directory), volume(Value::Null));
    }

    #[test]
    fn forgetting_leaves_the_volume_and_its_staging() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let mut state = of(directory);
        state.stage("v1", Path::new("/data/v1"), "/globalmount").unwrap();
        state.publish("v1", Path::new("/data/v1"), "/pods/a/mount").unwrap();
        state.publish("v2", Path::new("/data/v2"), "/pods/b/mount").unwrap();
        assert_eq!(state.forget(Some("v2")).unwrap(), 1);
        assert!(state.is_published("v1", "/pods/a/mount"));
        assert_eq!(state.forget(None).unwrap(), 1);
        assert_eq!(state.forget(None).unwrap(), 0);
        let state = of(directory);
        assert!(state.published("v1").is_empty() && state.published("v2").is_empty());
        assert!(state.is_staged("v1", "/globalmount"));
        assert_eq!(written(directory)["Volumes"][0]["Published"], Value::Null);
    }

    #[test]
    fn a_file_of_another_kind_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("state.json"), "[]").unwrap();
        let error = State::load(directory.path().join("state.json"), "n1").unwrap_err();
        assert!(error.to_string().ends_with("state.json is not a driver's state"), "{error}");
    }
}
