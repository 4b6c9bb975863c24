//! What a kubelet was started with, as far as it says where its things are: flags, and the files that
//! they name. Nothing is read here.
//!
//! k3s runs a kubelet within itself and hides its own command line, which may hold a token
//! (`proctitle.SetProcTitle` in its `pkg/cli/server`); what it was told stands in its own configuration.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::component::KUBELETS;

/// Programs that run a kubelet within themselves or start one, under names other than its own.
pub(super) const WRAPPERS: [&[u8]; 2] = [b"k3s", b"rke2"];
/// k3s's default of `--data-dir`, and its configuration (`pkg/configfilearg`).
const K3S_DATA: &str = "/var/lib/rancher/k3s";
const K3S_CONFIG: &str = "/etc/rancher/k3s/config.yaml";

/// Where a kubelet has its things. Paths are as it sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// `--root-dir`.
    pub(crate) root: Option<PathBuf>,
    /// `--kubeconfig`.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// `--config`.
    pub(crate) config: Option<PathBuf>,
    /// `--config-dir`: drop-ins that change what `config` says.
    pub(crate) config_dir: Option<PathBuf>,
    /// `--hostname-override`.
    pub(crate) node_name: Option<String>,
    /// `podLogsDir` of its configuration.
    pub(crate) pod_logs: Option<PathBuf>,
    /// Whether it is k3s, which reads a configuration of its own.
    pub(crate) is_k3s: bool,
}

impl Settings {
    /// Of a command line; `None` for a program that has no kubelet in it.
    pub(crate) fn of(words: &[String]) -> Option<Self> {
        let program = Path::new(words.first()?).file_name()?.to_str()?;
        // One that has replaced its command line has left its words in the first.
        let program = program.split(' ').next().unwrap_or(program).as_bytes();
        let is_wrapper = WRAPPERS.contains(&program);
        if !KUBELETS.contains(&program) && !is_wrapper {
            return None;
        }
        let is_k3s = program.starts_with(b"k3s");
        let mut settings = Self { is_k3s, ..Self::default() };
        // As in `--flag value` and `--flag=value`; one dash is as good as two.
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
            match flag {
                "kubelet-arg" => handed_on.push(value),
                "data-dir" | "d" if is_k3s => data = Some(PathBuf::from(value)),
                "node-name" if is_wrapper || is_k3s => settings.node_name = Some(value.into()),
                _ => settings.flag(flag, value),
            }
        }
        if is_k3s {
            settings.k3s_data(&data.unwrap_or_else(|| K3S_DATA.into()));
        }
        for (flag, value) in handed_on.iter().filter_map(|arg| arg.split_once('=')) {
            settings.flag(flag, value);
        }
        Some(settings)
    }

    fn flag(&mut self, flag: &str, value: &str) {
        match flag {
            "root-dir" => self.root = Some(value.into()),
            "kubeconfig" => self.kubeconfig = Some(value.into()),
            "config" => self.config = Some(value.into()),
            "config-dir" => self.config_dir = Some(value.into()),
            "hostname-override" => self.node_name = Some(value.into()),
            _ => {}
        }
    }

    /// Where k3s keeps what its kubelet is told (`pkg/agent/config`).
    fn k3s_data(&mut self, data: &Path) {
        let agent = data.join("agent");
        self.kubeconfig = Some(agent.join("kubelet.kubeconfig"));
        self.config_dir = Some(agent.join("etc/kubelet.conf.d"));
    }

    /// k3s's own configuration, and the directory of its drop-ins.
    pub(crate) fn k3s_config(&self) -> Option<(PathBuf, PathBuf)> {
        let file = PathBuf::from(K3S_CONFIG);
        self.is_k3s.then(|| (file.clone(), file.with_extension("yaml.d")))
    }

    /// Takes a file of k3s's configuration.
    ///
    /// # Errors
    /// Fails when it is none.
    pub(crate) fn take_k3s(&mut self, text: &str) -> Result<(), String> {
        let told: K3s = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if let Some(data) = &told.data_dir {
            self.k3s_data(data);
        }
        if told.node_name.is_some() {
            self.node_name = told.node_name;
        }
        let args =
            [told.kubelet_arg, told.more_args].into_iter().flatten().flat_map(OneOrMany::list);
        for arg in args {
            if let Some((flag, value)) = arg.split_once('=') {
                self.flag(flag, value);
            }
        }
        Ok(())
    }

    /// Takes a `KubeletConfiguration`; what it says replaces what was said before.
    ///
    /// # Errors
    /// Fails when it is none.
    pub(crate) fn take_config(&mut self, text: &str) -> Result<(), String> {
        let told: Configuration =
            serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if told.kind.as_deref() != Some("KubeletConfiguration") {
            return Err("it is no KubeletConfiguration".into());
        }
        if let Some(directory) = told.pod_logs_dir.filter(|path| path.is_absolute()) {
            self.pod_logs = Some(directory);
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    kind: Option<String>,
    pod_logs_dir: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct K3s {
    kubelet_arg: Option<OneOrMany>,
    /// Added to those of the files before.
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

    fn of(text: &str) -> Option<Settings> {
        Settings::of(&text.split(' ').map(String::from).collect::<Vec<_>>())
    }

    fn root(text: &str) -> Option<PathBuf> {
        of(text).and_then(|settings| settings.root)
    }

    #[test]
    fn fuzz_kubelet_flags() {
        crate::fuzz::fuzz("kubelet_flags", |input| {
            let text = String::from_utf8_lossy(input);
            let words: Vec<String> = text.split('\0').map(str::to_owned).collect();
            let _ = Settings::of(&words).and_then(|settings| settings.k3s_config());
        });
    }

    #[test]
    fn fuzz_kubelet_config() {
        crate::fuzz::fuzz("kubelet_config", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = Settings::default().take_config(&text);
        });
    }

    #[test]
    fn fuzz_k3s_config() {
        crate::fuzz::fuzz("k3s_config", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = Settings::default().take_k3s(&text);
        });
    }

    #[test]
    fn the_root_is_read_from_both_forms_of_the_flag() {
        let data = Some(PathBuf::from("/data/k"));
        assert_eq!(root("/usr/bin/kubelet --v=2 --root-dir=/data/k"), data);
        assert_eq!(root("kubelet -root-dir /data/k"), data);
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
    fn a_kubelet_says_who_it_is_and_where_its_credentials_are() {
        let text = "hyperkube kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config /var/k.yaml \
             --hostname-override=n1 --bootstrap-kubeconfig=/b";
        let settings = of(text).unwrap();
        assert_eq!(settings.kubeconfig, Some("/etc/kubernetes/kubelet.conf".into()));
        assert_eq!(settings.config, Some("/var/k.yaml".into()));
        assert_eq!(settings.node_name.as_deref(), Some("n1"));
        assert!(!settings.is_k3s && settings.k3s_config().is_none());
    }

    #[test]
    fn k3s_hides_its_words_and_keeps_its_files_where_it_always_does() {
        let mut settings = Settings::of(&["/usr/local/bin/k3s server".into()]).unwrap();
        let usual = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig";
        assert_eq!(settings.kubeconfig, Some(usual.into()));
        let (file, drop_ins) = settings.k3s_config().unwrap();
        assert_eq!(file, Path::new("/etc/rancher/k3s/config.yaml"));
        assert_eq!(drop_ins, Path::new("/etc/rancher/k3s/config.yaml.d"));
        let told =
            "data-dir: /data/k3s\nnode-name: n2\ntoken: secret\nkubelet-arg:\n- root-dir=/data/k\n";
        settings.take_k3s(told).unwrap();
        settings.take_k3s("kubelet-arg+: v=2\n").unwrap();
        assert_eq!(settings.root, Some("/data/k".into()));
        assert_eq!(settings.node_name.as_deref(), Some("n2"));
        assert_eq!(settings.kubeconfig, Some("/data/k3s/agent/kubelet.kubeconfig".into()));
        assert!(settings.take_k3s("- a list\n").is_err());
    }

    #[test]
    fn what_a_later_file_of_the_configuration_says_counts() {
        let mut settings = Settings::default();
        let config = |rest: &str| {
            format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{rest}")
        };
        settings.take_config(&config("podLogsDir: /a\nport: 10250\n")).unwrap();
        settings.take_config(&config("podLogsDir: /b\n")).unwrap();
        settings.take_config(&config("evictionHard: {memory.available: 1Gi}\n")).unwrap();
        settings.take_config(&config("podLogsDir: relative\n")).unwrap();
        assert_eq!(settings.pod_logs, Some("/b".into()));
        let json = r#"{"kind":"KubeletConfiguration","podLogsDir":"/c"}"#;
        settings.take_config(json).unwrap();
        assert_eq!(settings.pod_logs, Some("/c".into()));
        assert!(settings.take_config("kind: Pod\n").unwrap_err().contains("KubeletConfiguration"));
        assert!(settings.take_config(": : :").is_err());
    }
}
