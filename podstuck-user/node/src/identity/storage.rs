//! Where containers-storage, of CRI-O and Podman, keeps layers, containers and volumes. Nothing is read here.

use std::path::{Path, PathBuf};

use toml_edit::Document;

use super::{
    data_roots::Told,
    target_roots::{Holds, TargetRoot},
};

/// The configuration of containers-storage: the first that is there counts (containers/storage
/// `types/options_linux.go`).
pub(crate) const STORAGE: [&str; 2] =
    ["/etc/containers/storage.conf", "/usr/share/containers/storage.conf"];
/// Podman's own, which may keep its volumes elsewhere.
pub(crate) const PODMAN: [&str; 2] =
    ["/etc/containers/containers.conf", "/usr/share/containers/containers.conf"];
/// CRI-O's, unless it was told others; of its drop-ins the last counts (cri-o `internal/criocli`).
pub(super) const CRIO: &str = "/etc/crio/crio.conf";
const DROP_INS: &str = "/etc/crio/crio.conf.d";

/// The directory of the drop-ins of a CRI-O that was started with these words.
pub(super) fn drop_ins_of_crio(told: &Told) -> PathBuf {
    told.flag(&["--config-dir", "-d"]).unwrap_or_else(|| DROP_INS.into())
}

/// Where a CRI-O was told to keep its things: by its words, by the last of its files that says so, or else by the
/// configuration of containers-storage.
pub(super) fn of_crio(told: &Told) -> Vec<TargetRoot> {
    let files = || told.drop_ins.iter().rev().chain([&told.config]);
    let find = |flags: &[&str], key: &str, of_storage: &str| {
        let of_files = || files().find_map(|text| path(text, "crio", key));
        told.flag(flags).or_else(of_files).or_else(|| path(&told.storage, "storage", of_storage))
    };
    let data = find(&["--root", "-r"], "root", "graphroot");
    let state = find(&["--runroot"], "runroot", "runroot");
    [data, state].into_iter().flatten().map(|path| TargetRoot::of_host(path, Holds::Data)).collect()
}

/// Where Podman, which has no daemon that could be asked, keeps its things.
pub(crate) fn of_podman(storage: &str, podman: &str) -> Vec<TargetRoot> {
    let data = path(storage, "storage", "graphroot");
    let volumes = path(podman, "engine", "volume_path");
    // Of another name nothing is known to be a volume.
    let above = volumes.filter(|path| path.ends_with("volumes"));
    let above = above.and_then(|path| Some(path.parent()?.to_owned()));
    let all = [data, above].into_iter().flatten().filter(|path| path != Path::new("/"));
    all.map(|path| TargetRoot::of_host(path, Holds::Data)).collect()
}

/// A path that is told in a table. One with a variable is a user's.
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

    /// Words, `crio.conf`, drop-ins in their order, `storage.conf`, and where it keeps its things.
    #[test]
    fn cri_o_says_where_it_was_told_to_be() {
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
            let told = Told {
                words: words.split(' ').map(String::from).collect(),
                config: config.into(),
                drop_ins: drop_ins.iter().map(|text| (*text).to_owned()).collect(),
                storage: storage.into(),
                unread: None,
            };
            let found = paths(of_runtime(Component::CriO, &told));
            assert_eq!(found, expected, "{words} {config} {drop_ins:?} {storage}");
        }
    }

    #[test]
    fn cri_os_files_are_where_it_was_told() {
        let of = |words: &str| {
            let words: Vec<String> = words.split(' ').map(String::from).collect();
            let told = Told { words: words.clone(), ..Told::default() };
            let config = crate::identity::data_roots::config_of(Component::CriO, &words);
            (config.unwrap(), drop_ins_of_crio(&told))
        };
        let usual = (PathBuf::from(CRIO), PathBuf::from(DROP_INS));
        assert_eq!(of("/usr/bin/crio"), usual);
        assert_eq!(of("crio -c /c.conf --config-dir=/d"), ("/c.conf".into(), "/d".into()));
    }

    #[test]
    fn podman_says_where_its_layers_and_volumes_are() {
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
            let told =
                Told { storage: text.clone().into(), config: text.into(), ..Told::default() };
            of_crio(&told);
        });
    }
}
