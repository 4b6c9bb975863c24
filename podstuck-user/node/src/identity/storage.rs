//! Directories of containers-storage (CRI-O and Podman) with layers, containers and volumes. No file is read here.

use std::path::{Path, PathBuf};

use toml_edit::Document;

use super::{
    data_roots::RuntimeSettings,
    target_roots::{Holds, TargetRoot},
};

/// The configuration of containers-storage: the first existing file counts (containers/storage
/// `types/options_linux.go`).
pub(crate) const STORAGE: [&str; 2] =
    ["/etc/containers/storage.conf", "/usr/share/containers/storage.conf"];
/// Podman's own configuration, which may set another path for volumes.
pub(crate) const PODMAN: [&str; 2] =
    ["/etc/containers/containers.conf", "/usr/share/containers/containers.conf"];
/// Defaults of CRI-O's configuration file and directory; the last drop-in counts (cri-o `internal/criocli`).
pub(super) const CRIO: &str = "/etc/crio/crio.conf";
const DROP_INS: &str = "/etc/crio/crio.conf.d";

/// The directory of CRI-O's drop-ins, by its command line.
pub(super) fn drop_ins_of_crio(settings: &RuntimeSettings) -> PathBuf {
    settings.flag(&["--config-dir", "-d"]).unwrap_or_else(|| DROP_INS.into())
}

/// The directories in CRI-O's settings: by its command line, else by the last of its files with a value, else by the
/// configuration of containers-storage.
pub(super) fn of_crio(settings: &RuntimeSettings) -> Vec<TargetRoot> {
    let files = || settings.drop_ins.iter().rev().chain([&settings.config]);
    let find = |flags: &[&str], key: &str, of_storage: &str| {
        let of_files = || files().find_map(|text| path(text, "crio", key));
        settings
            .flag(flags)
            .or_else(of_files)
            .or_else(|| path(&settings.storage, "storage", of_storage))
    };
    let data = find(&["--root", "-r"], "root", "graphroot");
    let state = find(&["--runroot"], "runroot", "runroot");
    [data, state].into_iter().flatten().map(|path| TargetRoot::of_host(path, Holds::Data)).collect()
}

/// Podman's directories, by its configuration: it has no daemon.
pub(crate) fn of_podman(storage: &str, podman: &str) -> Vec<TargetRoot> {
    let data = path(storage, "storage", "graphroot");
    let volumes = path(podman, "engine", "volume_path");
    // Only a directory named `volumes` is recognised as one of volumes.
    let above = volumes.filter(|path| path.ends_with("volumes"));
    let above = above.and_then(|path| Some(path.parent()?.to_owned()));
    let all = [data, above].into_iter().flatten().filter(|path| path != Path::new("/"));
    all.map(|path| TargetRoot::of_host(path, Holds::Data)).collect()
}

/// A path in a table of a configuration. A path with a variable is a user's, and ignored.
fn path(text: &str, table: &str, key: &str) -> Option<PathBuf> {
    let config = Document::parse(text).ok()?;
    let value = PathBuf::from(config.get(table)?.get(key)?.as_str()?);
    let is_plain = value.is_absolute() && !value.as_os_str().as_encoded_bytes().contains(&b'$');
    is_plain.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::data_roots::of_runtime;
    use podstuck_model::identity::Component;

    fn paths(roots: Vec<TargetRoot>) -> Vec<String> {
        assert!(roots.iter().all(|root| root.holds == Holds::Data));
        roots.into_iter().map(|root| root.path.to_string_lossy().into_owned()).collect()
    }

    /// Command line, `crio.conf`, drop-ins in their order, `storage.conf`, and the expected directories.
    #[test]
    fn cri_os_directories_are_read_from_its_settings() {
        type Row<'a> = (&'a str, &'a str, &'a [&'a str], &'a str, &'a [&'a str]);
        let storage = "[storage]\ndriver = 'overlay'\ngraphroot = '/s'\nrunroot = '/run/s'\n";
        let table: [Row<'_>; 11] = [
            ("crio", "", &[], "", &[]),
            ("crio", "", &[], storage, &["/s", "/run/s"]),
            ("crio", "[crio]\nroot = '/c'\n", &[], storage, &["/c", "/run/s"]),
            (
                "crio",
                "[crio]\nroot = '/c'\n",
                &["[crio]\nroot = '/one'", "[crio]\nroot = '/two'"],
                "",
                &["/two"],
            ),
            ("crio", "[crio]\nroot = '/c'\n", &["[crio.runtime]\nroot = '/no'"], "", &["/c"]),
            (
                "crio --root /w",
                "[crio]\nroot = '/c'\nrunroot = '/r'\n",
                &[],
                storage,
                &["/w", "/r"],
            ),
            ("crio -r=/w --runroot=/x", "", &[], storage, &["/w", "/x"]),
            ("crio", "[crio]\nroot = ''\n", &[], storage, &["/s", "/run/s"]),
            ("crio", "[crio", &[], "graphroot = '/no'", &[]),
            ("crio", "", &[], "[storage]\ngraphroot = '$HOME/s'\n", &[]),
            ("crio --root /", "", &[], "", &[]),
        ];
        for (words, config, drop_ins, storage, expected) in table {
            let settings = RuntimeSettings {
                words: words.split(' ').map(String::from).collect(),
                config: config.into(),
                drop_ins: drop_ins.iter().map(|text| (*text).to_owned()).collect(),
                storage: storage.into(),
                unread: None,
            };
            let found = paths(of_runtime(Component::CriO, &settings));
            assert_eq!(found, expected, "{words} {config} {drop_ins:?} {storage}");
        }
    }

    #[test]
    fn cri_os_files_are_read_from_its_flags() {
        let of = |words: &str| {
            let words: Vec<String> = words.split(' ').map(String::from).collect();
            let settings = RuntimeSettings { words: words.clone(), ..RuntimeSettings::default() };
            let config = crate::identity::data_roots::config_of(Component::CriO, &words);
            (config.unwrap(), drop_ins_of_crio(&settings))
        };
        let usual = (PathBuf::from(CRIO), PathBuf::from(DROP_INS));
        assert_eq!(of("/usr/bin/crio"), usual);
        assert_eq!(of("crio -c /c.conf --config-dir=/d"), ("/c.conf".into(), "/d".into()));
    }

    #[test]
    fn podmans_directories_are_read_from_its_configuration() {
        let table: [(&str, &str, &[&str]); 7] = [
            ("", "", &[]),
            ("[storage]\ngraphroot = '/data/s'\n", "", &["/data/s"]),
            ("", "[engine]\nvolume_path = '/data/podman/volumes'\n", &["/data/podman"]),
            ("", "[engine]\nvolume_path = '/data/vols'\n", &[]),
            ("", "[engine]\nvolume_path = '/volumes'\n", &[]),
            ("[storage]\nrootless_storage_path = '$HOME/s'\n", "", &[]),
            ("[storage]\ngraphroot = 7\n", "no toml", &[]),
        ];
        for (storage, podman, expected) in table {
            assert_eq!(paths(of_podman(storage, podman)), expected, "{storage} {podman}");
        }
    }

    #[test]
    fn fuzz_storage_conf() {
        podstuck_fuzz::fuzz("storage_conf", |input| {
            let text = String::from_utf8_lossy(input);
            of_podman(&text, &text);
            let settings = RuntimeSettings {
                storage: text.clone().into(),
                config: text.into(),
                ..RuntimeSettings::default()
            };
            of_crio(&settings);
        });
    }
}
