//! The settings of a kubelet for its paths and its name, from flags and the files that these name. No file is read
//! here.
//!
//! Distributions also have files of their own for them ([`Distribution`]).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{component::is_kubelets_name, distribution::Distribution};

/// Programs with other names that contain a kubelet or start one.
pub(super) const WRAPPERS: [&[u8]; 2] = [b"k3s", b"rke2"];

/// Paths and name of a kubelet. Paths are those of its own mount namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `--root-dir`.
    pub root: Option<PathBuf>,
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--config-dir`: drop-ins that override `config`.
    pub(crate) config_dir: Option<PathBuf>,
    /// `--hostname-override`.
    pub node_name: Option<String>,
    /// `podLogsDir` in its configuration.
    pub pod_logs: Option<PathBuf>,
    /// Ports by flags, which override those of the configuration.
    pub(crate) flag_ports: Ports,
    /// Ports by the configuration.
    pub(crate) config_ports: Ports,
    /// The distribution's file with kubelet's flags (MicroK8s).
    pub(crate) args_file: Option<PathBuf>,
    /// `--config` of the distribution: replaces its default configuration file.
    pub(crate) own_config: Option<PathBuf>,
    pub(crate) distribution: Option<Distribution>,
}

/// The ports where kubelet serves the list of its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ports {
    /// `--port`: TLS, and only for those who have the right.
    secure: Option<u16>,
    /// `--read-only-port`: neither.
    read_only: Option<u16>,
}

/// Of `KubeletPort` and `KubeletReadOnlyPort` in pkg/cluster/ports.
const PORT: u16 = 10250;
const READ_ONLY_PORT: u16 = 10255;

impl Settings {
    /// The port with TLS.
    pub(crate) fn port(&self) -> u16 {
        self.flag_ports.secure.or(self.config_ports.secure).unwrap_or(PORT)
    }

    /// The port without TLS, which most kubelets do not serve: that depends on more than the configuration's file.
    pub(crate) fn read_only_port(&self) -> u16 {
        let known = self.flag_ports.read_only.or(self.config_ports.read_only);
        known.filter(|port| *port != 0).unwrap_or(READ_ONLY_PORT)
    }

    /// Reads a command line; `None` for a program that contains no kubelet.
    pub fn of(words: &[String]) -> Option<Self> {
        let program = Path::new(words.first()?).file_name()?.to_str()?;
        // A program that has replaced its command line has all words in the first.
        let program = program.split(' ').next().unwrap_or(program).as_bytes();
        let is_wrapper = WRAPPERS.contains(&program);
        let distribution = Distribution::of(program);
        if !is_kubelets_name(program) && !is_wrapper && distribution.is_none() {
            return None;
        }
        let mut settings = Self { distribution, ..Self::default() };
        // `--flag value` or `--flag=value`, with one dash or two.
        let all = words.iter().enumerate().skip(1).filter_map(|(at, word)| {
            let word = word.strip_prefix('-')?;
            let word = word.strip_prefix('-').unwrap_or(word);
            match word.split_once('=') {
                Some((flag, value)) => Some((flag, value)),
                None => Some((word, words.get(at + 1)?.as_str())),
            }
        });
        let (mut handed_on, mut data) = (Vec::new(), None);
        for (flag, value) in all {
            match (flag, distribution) {
                ("kubelet-arg", _) => handed_on.push(value),
                ("kubelet-extra-args", Some(Distribution::K0s)) => {
                    handed_on.extend(value.split_whitespace().map(dashless));
                }
                ("kubelet-root-dir", Some(Distribution::K0s)) => settings.root = Some(value.into()),
                // k0s's `-d` is another flag.
                ("d", Some(Distribution::K3s | Distribution::Rke2)) | ("data-dir", Some(_)) => {
                    data = Some(PathBuf::from(value));
                }
                ("config" | "c", Some(_)) => settings.own_config = Some(value.into()),
                ("node-name", Some(_)) => settings.node_name = Some(value.into()),
                ("kubelet-args-file", _) => settings.args_file = Some(value.into()),
                _ => settings.flag(flag, value),
            }
        }
        if let Some(distribution) = distribution {
            settings.take_data(distribution, data.as_deref());
        }
        for (flag, value) in handed_on.iter().filter_map(|arg| arg.split_once('=')) {
            settings.flag(flag, value);
        }
        Some(settings)
    }

    pub(super) fn flag(&mut self, flag: &str, value: &str) {
        match flag {
            "root-dir" => self.root = Some(value.into()),
            "kubeconfig" => self.kubeconfig = Some(value.into()),
            "config" => self.config = Some(value.into()),
            "config-dir" => self.config_dir = Some(value.into()),
            "hostname-override" => self.node_name = Some(value.into()),
            "port" => self.flag_ports.secure = value.parse().ok(),
            "read-only-port" => self.flag_ports.read_only = value.parse().ok(),
            _ => {}
        }
    }

    /// Takes the paths in the distribution's data directory.
    pub(super) fn take_data(&mut self, distribution: Distribution, data: Option<&Path>) {
        let files = distribution.files(data);
        self.kubeconfig = files.kubeconfig.or_else(|| self.kubeconfig.take());
        self.config_dir = files.config_dir.or_else(|| self.config_dir.take());
        // An explicit root takes precedence.
        self.root = self.root.take().or(files.root);
    }

    /// Takes a `KubeletConfiguration`; its values replace earlier ones.
    ///
    /// # Errors
    /// Fails when the text is no `KubeletConfiguration`.
    pub(crate) fn take_config(&mut self, text: &str) -> Result<(), String> {
        let config: Configuration =
            serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if config.kind.as_deref() != Some("KubeletConfiguration") {
            return Err("it is not a KubeletConfiguration".into());
        }
        if let Some(directory) = config.pod_logs_dir.filter(|path| path.is_absolute()) {
            self.pod_logs = Some(directory);
        }
        let ports = &mut self.config_ports;
        ports.secure = config.port.or(ports.secure);
        ports.read_only = config.read_only_port.or(ports.read_only);
        Ok(())
    }
}

/// A flag without its leading dashes.
fn dashless(flag: &str) -> &str {
    flag.trim_start_matches('-')
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    kind: Option<String>,
    pod_logs_dir: Option<PathBuf>,
    port: Option<u16>,
    read_only_port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Settings> {
        Settings::of(&text.split(' ').map(String::from).collect::<Vec<_>>())
    }

    fn root(text: &str) -> Option<PathBuf> {
        of(text).and_then(|settings| settings.root)
    }

    #[test]
    fn fuzz_kubelet_flags() {
        podstuck_fuzz::fuzz("kubelet_flags", |input| {
            let text = String::from_utf8_lossy(input);
            let words: Vec<String> = text.split('\0').map(str::to_owned).collect();
            let _ = Settings::of(&words).and_then(|settings| settings.distributions_files());
        });
    }

    #[test]
    fn fuzz_kubelet_config() {
        podstuck_fuzz::fuzz("kubelet_config", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = Settings::default().take_config(&text);
        });
    }

    #[test]
    fn the_root_is_read_from_both_forms_of_the_flag() {
        let data = Some(PathBuf::from("/data/k"));
        assert_eq!(root("/usr/bin/kubelet --v=2 --root-dir=/data/k"), data);
        assert_eq!(root("kubelet -root-dir /data/k"), data);
        assert_eq!(root("/opt/kubelet-v1.30.2 --root-dir=/data/k"), data);
        assert_eq!(root("kubelet-1.30 --root-dir /data/k"), data);
        assert_eq!(of("kubelet-csr-approver --root-dir=/data/k"), None);
        assert_eq!(root("kubelet --v=2"), None);
        assert_eq!(root("kubelet root-dir=/data/k"), None);
        assert_eq!(of("vim --root-dir=/data/k"), None);
        let k3s = "/usr/local/bin/k3s server --kubelet-arg=v=2 --kubelet-arg=root-dir=/data/k";
        assert_eq!(root(k3s), data);
        assert_eq!(root("k3s-agent --kubelet-arg root-dir=/data/k"), data);
        assert_eq!(root("rke2 agent --kubelet-arg=root-dir=/data/k"), data);
        assert_eq!(root("k3s agent --kubelet-arg=cgroup-root=/x"), None);
    }

    #[test]
    fn name_and_credentials_are_read_from_flags() {
        let text = "hyperkube kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config /var/k.yaml \
             --hostname-override=n1 --bootstrap-kubeconfig=/b";
        let settings = of(text).unwrap();
        assert_eq!(settings.kubeconfig, Some("/etc/kubernetes/kubelet.conf".into()));
        assert_eq!(settings.config, Some("/var/k.yaml".into()));
        assert_eq!(settings.node_name.as_deref(), Some("n1"));
        assert!(settings.distribution.is_none() && settings.distributions_files().is_none());
    }

    #[test]
    fn a_later_file_of_the_configuration_overrides() {
        let mut settings = Settings::default();
        let config = |rest: &str| {
            format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{rest}")
        };
        settings.take_config(&config("podLogsDir: /a\nport: 10250\n")).unwrap();
        settings.take_config(&config("podLogsDir: /b\n")).unwrap();
        settings.take_config(&config("evictionHard: {memory.available: 1Gi}\n")).unwrap();
        settings.take_config(&config("podLogsDir: relative\n")).unwrap();
        assert_eq!(settings.pod_logs, Some("/b".into()));
        assert_eq!((settings.port(), settings.read_only_port()), (10250, 10255));
        settings.take_config(&config("port: 10350\nreadOnlyPort: 0\n")).unwrap();
        assert_eq!((settings.port(), settings.read_only_port()), (10350, 10255));
        settings.flag("port", "10450");
        settings.take_config(&config("port: 10550\nreadOnlyPort: 10355\n")).unwrap();
        assert_eq!((settings.port(), settings.read_only_port()), (10450, 10355), "by a flag");
        let json = r#"{"kind":"KubeletConfiguration","podLogsDir":"/c"}"#;
        settings.take_config(json).unwrap();
        assert_eq!(settings.pod_logs, Some("/c".into()));
        assert!(settings.take_config("kind: Pod\n").unwrap_err().contains("KubeletConfiguration"));
        assert!(settings.take_config(": : :").is_err());
    }
}
