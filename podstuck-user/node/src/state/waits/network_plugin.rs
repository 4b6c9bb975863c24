//! CNI plugins: programs that a runtime starts for the network of one sandbox, and that may start others. They take no
//! arguments: what they are to do stands in their environment (CNI specification, "Parameters").

use std::{collections::HashSet, fs::File, io::Read as _, path::Path};

use podstuck_confine::silent;

/// What is read of an environment.
const ENVIRONMENT: u64 = 64 << 10;

/// What one was started for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plugin {
    /// `ADD`, `DEL`, ...
    pub(super) command: &'static str,
    /// The sandbox, and what the runtime passes on of its pod, as `K8S_POD_UID=...`.
    of: Vec<Vec<u8>>,
}

impl Plugin {
    /// What this process was started for, if it is a plugin.
    pub(super) fn look(process: &Path) -> Option<Self> {
        let text = silent::read(process, |process| {
            let mut text = Vec::new();
            let file = File::open(process.join("environ")).ok()?;
            file.take(ENVIRONMENT).read_to_end(&mut text).ok()?;
            Some(text)
        })?;
        Self::read(&text)
    }

    fn read(environment: &[u8]) -> Option<Self> {
        let variable = |name: &[u8]| {
            let mut all = environment.split(|byte| *byte == 0);
            all.find_map(|variable| variable.strip_prefix(name)?.strip_prefix(b"="))
        };
        let command = match variable(b"CNI_COMMAND")? {
            b"ADD" => "ADD",
            b"DEL" => "DEL",
            b"CHECK" => "CHECK",
            b"GC" => "GC",
            b"STATUS" => "STATUS",
            _ => return None,
        };
        let sandbox = variable(b"CNI_CONTAINERID").map(<[u8]>::to_vec);
        let arguments = variable(b"CNI_ARGS").unwrap_or_default().split(|byte| *byte == b';');
        let values = arguments.filter_map(|it| it.splitn(2, |byte| *byte == b'=').nth(1));
        Some(Self { command, of: sandbox.into_iter().chain(values.map(<[u8]>::to_vec)).collect() })
    }

    /// Whether it is about one of these.
    pub(super) fn names_one(&self, names: &HashSet<&[u8]>) -> bool {
        self.of.iter().any(|name| names.contains(name.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_known_by_its_environment_and_names_sandbox_and_pod() {
        let text = b"PATH=/bin\0CNI_COMMAND=DEL\0CNI_CONTAINERID=abc\0CNI_NETNS=/run/netns/x\0\
            CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=cart-0;K8S_POD_UID=u-1\0";
        let plugin = Plugin::read(text).unwrap();
        assert_eq!(plugin.command, "DEL");
        for name in [&b"abc"[..], b"u-1"] {
            assert!(plugin.names_one(&HashSet::from([name])));
        }
        for other in [&b"ab"[..], b"u-2", b"K8S_POD_UID"] {
            assert!(!plugin.names_one(&HashSet::from([other])));
        }
        assert_eq!(Plugin::read(b"HOME=/\0CNI_PATH=/opt/cni/bin\0"), None);
        assert_eq!(Plugin::read(b"CNI_COMMAND=rm -rf\0"), None);
    }
}
