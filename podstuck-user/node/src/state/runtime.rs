//! Reads the settings of running runtimes for their directories, from their command lines and configuration, in the
//! helper process.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    as_process::{enter, words},
    kubelet::{files_in, files_that},
};
use crate::identity::{
    data_roots::{RuntimeSettings, config_of, drop_ins_of, imports_of},
    storage::{PODMAN, STORAGE, of_podman},
    target_roots::TargetRoot,
};
use podstuck_confine::helper::{Question, Teller, ask};
use podstuck_confine::role::Role;
use podstuck_model::identity::Component;

/// Files taken of those that a configuration imports, and names read of a directory.
const IMPORTS: usize = 64;
const ENTRIES: usize = 4096;

/// Reads the settings of a runtime.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadRuntime {
    host_root: PathBuf,
    pid: u32,
    component: Component,
}

impl Question for ReadRuntime {
    const IS_SHORT: bool = true;
    const ROLE: Role = Role::HelperInside;
    type Step = ();
    type Part = ();
    type Answer = RuntimeSettings;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<RuntimeSettings> {
        let words = words(&self.host_root, self.pid)?;
        let inside = enter(&self.host_root, self.pid)?;
        let read = |path: &Path| {
            inside.lives(path)?;
            // Most have none, or one that says nothing of this.
            if path.exists() { inside.only_roots().read(path) } else { Ok(String::new()) }
        };
        let mut unread = None;
        let mut text = |file: &Path| {
            let why = |why| unread = Some(format!("its configuration: {why:#}"));
            read(file).map_err(why).unwrap_or_default()
        };
        let file = config_of(self.component, &words);
        let config = file.as_deref().map(&mut text).unwrap_or_default();
        let (mut drop_ins, mut storage) = (Vec::new(), String::new());
        if let (Component::Containerd, Some(file)) = (self.component, &file) {
            drop_ins =
                imported(file, &config, &mut text, |directory| inside.lives(directory).is_ok());
        }
        if let Some(directory) = drop_ins_of(self.component, &words) {
            let lives = inside.lives(&directory).is_ok();
            let files = if lives { files_in(&directory, "conf") } else { Vec::new() };
            drop_ins = files.iter().map(|file| text(file)).collect();
            storage = STORAGE
                .iter()
                .map(|file| text(Path::new(file)))
                .find(|it| !it.is_empty())
                .unwrap_or_default();
        }
        Ok(RuntimeSettings { words, config, drop_ins, storage, unread })
    }
}

/// What containerd's configuration imports: breadth first, each file once (`LoadConfig` in its
/// cmd/containerd/server/config).
fn imported(
    file: &Path,
    config: &str,
    mut text: impl FnMut(&Path) -> String,
    lives: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let mut taken = vec![file.to_owned()];
    let mut pending: VecDeque<PathBuf> = imports_of(file, config).into();
    let mut texts = Vec::new();
    while let Some(path) = pending.pop_front() {
        let is_pattern = path.as_os_str().as_encoded_bytes().contains(&b'*');
        for file in if is_pattern { matching(&path, &lives) } else { vec![path] } {
            if taken.len() > IMPORTS || taken.contains(&file) {
                continue;
            }
            let config = text(&file);
            pending.extend(imports_of(&file, &config));
            taken.push(file);
            texts.push(config);
        }
    }
    texts
}

/// Files of one directory whose name is like a pattern's last, in the order of their names.
fn matching(pattern: &Path, lives: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let name = pattern.file_name().and_then(|name| glob::Pattern::new(name.to_str()?).ok());
    let (Some(directory), Some(name)) = (pattern.parent(), name) else { return Vec::new() };
    if !lives(directory) {
        return Vec::new();
    }
    files_that(directory, ENTRIES, |path| {
        path.file_name().and_then(|it| it.to_str()).is_some_and(|it| name.matches(it))
    })
}

/// The settings of a runtime; `None` for one that has ended, or whose files do not answer within two seconds.
pub fn settings(host_root: &Path, pid: u32, component: Component) -> Option<RuntimeSettings> {
    let question = ReadRuntime { host_root: host_root.into(), pid, component };
    let settings =
        ask(question).map_err(|why| tracing::info!("runtime (pid {pid}): {why}")).ok()?;
    if let Some(why) = &settings.unread {
        tracing::info!("runtime (pid {pid}): {why}");
    }
    Some(settings)
}

/// The target roots in the node's configuration of containers-storage and Podman.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadStorage {
    host_root: PathBuf,
}

impl Question for ReadStorage {
    const IS_SHORT: bool = true;
    const ROLE: Role = Role::HelperInside;
    type Step = ();
    type Part = ();
    /// The texts of its file and of Podman's; empty without one.
    type Answer = [String; 2];

    fn answer(self, _: &mut Teller<(), ()>) -> Result<[String; 2]> {
        let inside = enter(&self.host_root, 1)?;
        let first = |files: [&str; 2]| {
            let there = files.map(Path::new).into_iter().find(|path| {
                // Most nodes have none.
                inside.lives(path).is_ok() && path.exists()
            });
            let text = there.map(|path| inside.only_roots().read(path));
            text.transpose().map(Option::unwrap_or_default)
        };
        Ok([first(STORAGE)?, first(PODMAN)?])
    }
}

/// Where Podman keeps its things, and a CRI-O that does not run now.
pub fn storage(host_root: &Path) -> Vec<TargetRoot> {
    match ask(ReadStorage { host_root: host_root.into() }) {
        Ok([storage, podman]) => of_podman(&storage, &podman),
        Err(why) => {
            tracing::info!("the configuration of containers-storage: {why}");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::state::scratch::write;

    #[test]
    fn imports_are_taken_breadth_first_and_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let config =
            format!("imports = ['a.toml', '{}/d/*.toml', 'gone.toml', 7]", dir.path().display());
        // That it imports what imports it is no circle.
        write(at("a.toml"), "imports = ['b.toml', 'config.toml', 'a.toml']\nroot = '/a'");
        write(at("b.toml"), "root = '/b'");
        write(at("d/2.toml"), "root = '/2'");
        write(at("d/1.toml"), "root = '/1'");
        write(at("d/3.toml.bak"), "root = '/never'");
        let text = |file: &Path| fs::read_to_string(file).unwrap_or_default();
        let roots = |lives: bool| {
            let texts = imported(&at("config.toml"), &config, text, |_| lives);
            let last = texts.iter().filter_map(|text| text.split("root = ").nth(1));
            last.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(roots(true), ["'/a'", "'/1'", "'/2'", "'/b'"]);
        assert_eq!(roots(false), ["'/a'", "'/b'"]);
    }

    #[test]
    fn imports_have_a_bound() {
        let more = |file: &Path| format!("imports = ['{}1']", file.display());
        let texts = imported(Path::new("/c"), "imports = ['/x']", more, |_| true);
        assert_eq!(texts.len(), IMPORTS);
    }
}
