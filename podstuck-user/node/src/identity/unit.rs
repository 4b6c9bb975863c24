//! kubelet's systemd unit, and the environment files that it names. No file is read here.
//!
//! They show the root of a kubelet that does not run. kubeadm and most distributions keep flags in variables
//! (`KUBELET_KUBEADM_ARGS` in `/var/lib/kubelet/kubeadm-flags.env`); systemd.exec(5) and systemd.service(5) describe how
//! these enter the command line.

use std::{collections::BTreeMap, path::PathBuf};

use shlex::Shlex;

use super::kubelet::Settings;

/// A unit, with its drop-ins applied in order.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    start: Option<String>,
    /// Variables of `Environment=`, overridden by those of the environment files.
    variables: BTreeMap<String, String>,
    files: Vec<PathBuf>,
}

impl Unit {
    /// A command without a unit, with these environment files.
    pub(crate) fn of_command(start: &str, files: impl IntoIterator<Item = PathBuf>) -> Self {
        let files = files.into_iter().collect();
        Self { start: Some(start.into()), files, ..Self::default() }
    }

    /// Takes a file of the unit: its own first, and then its drop-ins.
    pub fn take(&mut self, text: &str) {
        let mut is_service = false;
        for line in lines(text) {
            if line.starts_with('[') {
                is_service = line == "[Service]";
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| is_service) else { continue };
            let value = value.trim();
            match key.trim() {
                // An empty value resets the earlier ones.
                "ExecStart" => self.start = (!value.is_empty()).then(|| value.to_owned()),
                "Environment" if value.is_empty() => self.variables.clear(),
                "Environment" => self.variables.extend(Shlex::new(value).filter_map(variable)),
                "EnvironmentFile" if value.is_empty() => self.files.clear(),
                // A leading dash marks an optional file.
                "EnvironmentFile" => self.files.push(value.trim_start_matches('-').into()),
                _ => {}
            }
        }
    }

    /// The environment files that it names.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Takes an environment file.
    pub(crate) fn take_variables(&mut self, text: &str) {
        let named = lines(text).filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            // Blanks are part of the value, with quotes or without.
            let value = Shlex::new(value).collect::<Vec<_>>().join(" ");
            Some((name.trim().to_owned(), value))
        });
        self.variables.extend(named.collect::<Vec<_>>());
    }

    /// The settings of its kubelet; `None` where it starts no kubelet.
    pub fn settings(&self) -> Option<Settings> {
        // systemd's prefixes of the program.
        let start = self.start.as_deref()?.trim_start_matches(['@', '-', ':', '+', '!']);
        let words: Vec<String> = Shlex::new(start).flat_map(|word| self.expanded(word)).collect();
        // Another program may start kubelet, as `env` does.
        (0..words.len()).find_map(|at| Settings::of(words.get(at..)?))
    }

    /// Expands a word: `$NAME` becomes the words of its value, `${NAME}` a part of one word.
    fn expanded(&self, word: String) -> Vec<String> {
        let value = |name: &str| self.variables.get(name).map_or("", String::as_str);
        if let Some(name) = word.strip_prefix('$').filter(|name| !name.starts_with(['{', '$'])) {
            return Shlex::new(value(name)).collect();
        }
        let mut out = String::new();
        let mut rest = word.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else { break };
            out.push_str(before);
            out.push_str(value(name));
            rest = after;
        }
        out.push_str(rest);
        vec![out]
    }
}

fn variable(assignment: String) -> Option<(String, String)> {
    let (name, value) = assignment.split_once('=')?;
    Some((name.to_owned(), value.to_owned()))
}

/// Lines without comments; a line that ends with a backslash continues in the next.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    std::iter::from_fn(move || {
        let mut whole = lines.next()?.to_owned();
        while whole.ends_with('\\') {
            whole.pop();
            whole.push(' ');
            whole.push_str(lines.next().unwrap_or_default());
        }
        Some(whole)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn unit(texts: &[&str]) -> Unit {
        let mut unit = Unit::default();
        texts.iter().for_each(|text| unit.take(text));
        unit
    }

    fn root(unit: &Unit) -> Option<PathBuf> {
        unit.settings()?.root
    }

    #[test]
    fn fuzz_unit() {
        podstuck_fuzz::fuzz("unit", |input| {
            let text = String::from_utf8_lossy(input);
            let mut unit = Unit::default();
            unit.take(&text);
            unit.take_variables(&text);
            let _ = unit.settings();
        });
    }

    const KUBEADM: &str = "[Service]\n\
        Environment=\"KUBELET_KUBECONFIG_ARGS=--kubeconfig=/etc/kubernetes/kubelet.conf --v=2\"\n\
        # what kubeadm writes, and what the administrator does\n\
        EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n\
        EnvironmentFile=-/etc/default/kubelet\n\
        ExecStart=\n\
        ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n";

    #[test]
    fn kubeadms_variables_set_the_root() {
        let mut kubelet =
            unit(&["[Service]\nExecStart=/usr/bin/kubelet --root-dir=/no\n", KUBEADM]);
        let files = ["/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet"];
        assert_eq!(kubelet.files(), files.map(Path::new));
        assert_eq!(root(&kubelet), None);
        let kubeconfig = kubelet.settings().unwrap().kubeconfig;
        assert_eq!(kubeconfig, Some("/etc/kubernetes/kubelet.conf".into()));
        kubelet.take_variables("KUBELET_KUBEADM_ARGS=\"--pod-infra=p --root-dir=/data/k\"\n");
        assert_eq!(root(&kubelet), Some("/data/k".into()));
        // The later flag in the command line counts.
        kubelet.take_variables("# mine\nKUBELET_EXTRA_ARGS=--v=4 --root-dir /mnt/k\n");
        assert_eq!(root(&kubelet), Some("/mnt/k".into()));
    }

    #[test]
    fn a_unit_is_read_as_systemd_reads_it() {
        let table = [
            ("[Service]\nExecStart=/usr/bin/kubelet --root-dir=/a\n", Some("/a")),
            (
                "[Service]\nExecStart=-/opt/kubelet-v1.30.2 \\\n  --v=2 \\\n  --root-dir=/a\n",
                Some("/a"),
            ),
            (
                "[Service]\nExecStart=/usr/bin/kubelet --root-dir=${K}/x\nEnvironment=K=/a J=b\n",
                Some("/a/x"),
            ),
            (
                "[Service]\nEnvironment=K=/a\nEnvironment=\nExecStart=kubelet --root-dir=${K}/x\n",
                Some("/x"),
            ),
            ("[Service]\nExecStart=/usr/bin/env A=b /usr/bin/kubelet --root-dir=/a\n", Some("/a")),
            (
                "[Service]\nExecStart=/usr/local/bin/k3s server '--kubelet-arg=root-dir=/a b'\n",
                Some("/a b"),
            ),
            ("[Service]\nExecStart=kubelet --root-dir=/a\nExecStart=\n", None),
            ("[Unit]\nExecStart=kubelet --root-dir=/a\n", None),
            ("[Service]\nExecStart=/usr/bin/vim --root-dir=/a\n", None),
            ("[Service]\nExecStart=kubelet --root-dir='/not closed\n", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(root(&unit(&[text])).as_deref(), expected.map(Path::new), "{text}");
        }
        let fallback = Unit::of_command("kubelet $A", ["/etc/default/kubelet".into()]);
        assert_eq!((root(&fallback), fallback.files().len()), (None, 1));
    }
}
