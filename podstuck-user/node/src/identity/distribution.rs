//! The kubelet settings of distributions, each with its own files and flags. No file is read here.
//!
//! k3s runs a kubelet within itself and hides its own command line, which may hold a token
//! (`proctitle.SetProcTitle` in its `pkg/cli/server`); RKE2 starts one (`pkg/podexecutor`) and passes on the flags
//! in its configuration. MicroK8s' kubelite reads the flags from a file, in which its directories are variables.
//! MicroShift runs one within itself, by flags that it generates (`pkg/node/kubelet.go`): only its credentials are not
//! at kubelet's default path.
//! k0s starts a kubelet with all flags (`pkg/component/worker`); when it is gone, k0s's own command line shows its root.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shlex::Shlex;

use super::kubelet::Settings;

/// A distribution whose program is not the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Distribution {
    K3s,
    Rke2,
    K0s,
    MicroShift,
}

/// Paths in a distribution's data directory.
#[derive(Default)]
pub(super) struct Files {
    pub(super) root: Option<PathBuf>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) config_dir: Option<PathBuf>,
}

/// k0s's program, which starts a kubelet.
pub(super) const K0S: &[u8] = b"k0s";

impl Distribution {
    /// The distribution of a program.
    pub(super) fn of(program: &[u8]) -> Option<Self> {
        match program {
            b"rke2" => Some(Self::Rke2),
            K0S => Some(Self::K0s),
            b"microshift" => Some(Self::MicroShift),
            _ => program.starts_with(b"k3s").then_some(Self::K3s),
        }
    }

    /// Its paths below its `--data-dir`.
    pub(super) fn files(self, data: Option<&Path>) -> Files {
        match self {
            // `pkg/agent/config`.
            Self::K3s => {
                let agent = data.unwrap_or("/var/lib/rancher/k3s".as_ref()).join("agent");
                Files {
                    root: None,
                    kubeconfig: Some(agent.join("kubelet.kubeconfig")),
                    config_dir: Some(agent.join("etc/kubelet.conf.d")),
                }
            }
            // Its kubelet has them in its own flags.
            Self::Rke2 => Files::default(),
            Self::MicroShift => {
                let data = data.unwrap_or("/var/lib/microshift".as_ref());
                let kubeconfig = Some(data.join("resources/kubelet/kubeconfig"));
                Files { kubeconfig, ..Files::default() }
            }
            Self::K0s => {
                let root = data.unwrap_or("/var/lib/k0s".as_ref()).join("kubelet");
                Files { root: Some(root), ..Files::default() }
            }
        }
    }

    /// The default path of its configuration (`pkg/configfilearg`).
    fn config(self) -> Option<&'static str> {
        match self {
            Self::K3s => Some("/etc/rancher/k3s/config.yaml"),
            Self::Rke2 => Some("/etc/rancher/rke2/config.yaml"),
            Self::K0s | Self::MicroShift => None,
        }
    }
}

impl Settings {
    /// The distribution's own configuration, and the directory of its drop-ins.
    pub(crate) fn distributions_files(&self) -> Option<(PathBuf, PathBuf)> {
        let usual = self.distribution?.config()?;
        let file = self.own_config.clone().unwrap_or_else(|| usual.into());
        let mut drop_ins = file.clone().into_os_string();
        drop_ins.push(".d");
        Some((file, drop_ins.into()))
    }

    /// Takes a file of the distribution's configuration.
    ///
    /// # Errors
    /// Fails when the text is no such file.
    pub(crate) fn take_distributions(&mut self, text: &str) -> Result<(), String> {
        let config: Config = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if let (Some(distribution), Some(data)) = (self.distribution, &config.data_dir) {
            self.take_data(distribution, Some(data));
        }
        if config.node_name.is_some() {
            self.node_name = config.node_name;
        }
        let args =
            [config.kubelet_arg, config.more_args].into_iter().flatten().flat_map(OneOrMany::list);
        for arg in args {
            if let Some((flag, value)) = arg.split_once('=') {
                self.flag(flag, value);
            }
        }
        Ok(())
    }

    /// Takes the file with MicroK8s' flags: split as a shell does, with the snap's variables expanded.
    pub(crate) fn take_args(&mut self, text: &str) {
        let data = self.args_file.as_deref().and_then(|file| file.parent()?.parent());
        let data = data.unwrap_or("/var/snap/microk8s/current".as_ref()).to_owned();
        let common = data.with_file_name("common");
        let mut words = Shlex::new(text).peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix('-').map(|flag| flag.trim_start_matches('-')) else {
                continue;
            };
            match flag.split_once('=') {
                Some((flag, value)) => self.flag(flag, &expanded(value, &data, &common)),
                None if words.peek().is_some_and(|next| !next.starts_with('-')) => {
                    let value = words.next().unwrap_or_default();
                    self.flag(flag, &expanded(&value, &data, &common));
                }
                None => {}
            }
        }
    }
}

/// Expands a snap's variables: the directory of its revision, and the common one.
fn expanded(value: &str, data: &Path, common: &Path) -> String {
    let mut value = value.to_owned();
    for (name, place) in [("SNAP_DATA", data), ("SNAP_COMMON", common)] {
        let place = place.to_string_lossy();
        for variable in [format!("${{{name}}}"), format!("${name}")] {
            value = value.replace(&variable, &place);
        }
    }
    value
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
/// The configuration of k3s and RKE2.
struct Config {
    kubelet_arg: Option<OneOrMany>,
    /// Added to the arguments in earlier files.
    #[serde(rename = "kubelet-arg+")]
    more_args: Option<OneOrMany>,
    data_dir: Option<PathBuf>,
    node_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Many(Vec<String>),
    One(String),
}

impl OneOrMany {
    fn list(self) -> Vec<String> {
        match self {
            Self::Many(all) => all,
            Self::One(one) => vec![one],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Settings {
        Settings::of(&words.split(' ').map(String::from).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn fuzz_k3s_config() {
        podstuck_fuzz::fuzz("k3s_config", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = Settings::default().take_distributions(&text);
        });
    }

    #[test]
    fn fuzz_kubelet_args() {
        podstuck_fuzz::fuzz("kubelet_args", |input| {
            Settings::default().take_args(&String::from_utf8_lossy(input));
        });
    }

    #[test]
    fn k3s_hides_its_command_line_and_its_files_are_at_their_defaults() {
        let mut settings = Settings::of(&["/usr/local/bin/k3s server".into()]).unwrap();
        let usual = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig";
        assert_eq!(settings.kubeconfig, Some(usual.into()));
        let (file, drop_ins) = settings.distributions_files().unwrap();
        assert_eq!(file, Path::new("/etc/rancher/k3s/config.yaml"));
        assert_eq!(drop_ins, Path::new("/etc/rancher/k3s/config.yaml.d"));
        let config =
            "data-dir: /data/k3s\nnode-name: n2\ntoken: secret\nkubelet-arg:\n- root-dir=/data/k\n";
        settings.take_distributions(config).unwrap();
        settings.take_distributions("kubelet-arg+: v=2\n").unwrap();
        assert_eq!(settings.root, Some("/data/k".into()));
        assert_eq!(settings.node_name.as_deref(), Some("n2"));
        assert_eq!(settings.kubeconfig, Some("/data/k3s/agent/kubelet.kubeconfig".into()));
        assert!(settings.take_distributions("- a list\n").is_err());
    }

    /// For each distribution: its command line, its file, the text of that, and the resulting root.
    #[test]
    fn each_distribution_has_its_own_setting_for_the_root() {
        let (rke2, microk8s) =
            ("/etc/rancher/rke2/config.yaml", "/var/snap/microk8s/9072/args/kubelet");
        let kubelite = "/snap/microk8s/9072/kubelite --scheduler-args-file=/s --kubelet-args-file";
        let kubelite = [format!("{kubelite}={microk8s}"), format!("{kubelite} {microk8s}")];
        let table = [
            ("/usr/local/bin/rke2 agent", Some(rke2), "", None),
            ("rke2 server", Some(rke2), "kubelet-arg: root-dir=/data/k", Some("/data/k")),
            ("rke2 server", Some(rke2), "kubelet-arg+:\n- v=2\n- root-dir=/k", Some("/k")),
            ("rke2 agent --config /x.yml", Some("/x.yml"), "kubelet-arg: root-dir=/k", Some("/k")),
            ("rke2 agent -c=/x", Some("/x"), "node-name: n1\ndata-dir: /data/rke2", None),
            ("k0s worker --token-file /t", None, "", Some("/var/lib/k0s/kubelet")),
            ("/usr/bin/k0s controller --single --data-dir=/d", None, "", Some("/d/kubelet")),
            ("k0s worker --data-dir /d --kubelet-root-dir=/own", None, "", Some("/own")),
            ("k0s worker --kubelet-extra-args=--root-dir=/own", None, "", Some("/own")),
            ("k0s worker -d --token-file /t", None, "", Some("/var/lib/k0s/kubelet")),
            (&kubelite[0], Some(microk8s), "", None),
            (
                &kubelite[1],
                Some(microk8s),
                "# pods\n--root-dir=${SNAP_COMMON}/var/lib/kubelet\n--v 2",
                Some("/var/snap/microk8s/common/var/lib/kubelet"),
            ),
            (&kubelite[0], Some(microk8s), "--v\n--root-dir \"/a b\"", Some("/a b")),
            (
                &kubelite[0],
                Some(microk8s),
                "--root-dir=$SNAP_DATA/k",
                Some("/var/snap/microk8s/9072/k"),
            ),
            (&kubelite[0], Some(microk8s), "--root-dir \"/not closed", None),
        ];
        for (words, file, text, root) in table {
            let mut settings = of(words);
            let own = settings.distributions_files().map(|(file, _)| file);
            let args = settings.args_file.clone();
            assert_eq!(own.or(args).as_deref(), file.map(Path::new), "{words}");
            match &settings.args_file {
                Some(_) => settings.take_args(text),
                None if !text.is_empty() => settings.take_distributions(text).unwrap(),
                None => {}
            }
            assert_eq!(settings.root.as_deref(), root.map(Path::new), "{words}: {text}");
        }
    }

    #[test]
    fn microshift_keeps_its_credentials_elsewhere_and_its_pods_where_kubelet_does() {
        let settings = of("/usr/bin/microshift run");
        assert_eq!(settings.root, None);
        let usual = "/var/lib/microshift/resources/kubelet/kubeconfig";
        assert_eq!(settings.kubeconfig, Some(usual.into()));
        assert_eq!(settings.distributions_files(), None);
    }

    #[test]
    fn the_credentials_of_microk8s_are_in_its_file() {
        let mut settings = of("kubelite --kubelet-args-file=/var/snap/microk8s/7/args/kubelet");
        settings.take_args(
            "--kubeconfig=${SNAP_DATA}/credentials/kubelet.config\n--hostname-override=n1\n\
             --config=${SNAP_DATA}/args/kubelet-config\n",
        );
        let below = |name: &str| Some(Path::new("/var/snap/microk8s/7").join(name));
        assert_eq!(settings.kubeconfig, below("credentials/kubelet.config"));
        assert_eq!(settings.config, below("args/kubelet-config"));
        assert_eq!(settings.node_name.as_deref(), Some("n1"));
    }
}
