//! Shortens paths below a pod's directory, which an answer names repeatedly: the first is printed in full, later ones
//! begin with `…` in place of that directory. Commands and quoted logs stay unchanged.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use podstuck_model::{
    diagnosis::Diagnosis,
    finding::Finding,
    path::{ELLIPSIS, JsonPath, below_pod},
    remedy::Remedy,
};

/// The directory that was printed. `…` stands for one directory only, even where paths of several pods are named.
#[derive(Default)]
pub(super) struct Near {
    directory: Option<String>,
}

impl Near {
    /// Notes a text that is printed.
    pub(super) fn learn(&mut self, text: &str) {
        let words =
            text.split_whitespace().map(|word| word.trim_start_matches(['"', '\'', '(', '[', '`']));
        let found = words.filter(|word| word.starts_with('/')).find_map(below_pod);
        if let (None, Some((directory, _))) = (&self.directory, found) {
            self.directory = Some(directory.to_owned());
        }
    }

    /// The answer without its first lines, shortened in the order in which it is printed.
    pub(super) fn answer(&mut self, answer: &Diagnosis) -> Diagnosis {
        let mut near = answer.clone();
        near.stages.iter_mut().for_each(|it| self.prose(&mut it.fact));
        for link in near.stages.iter_mut().flat_map(|pod| &mut pod.chain) {
            [&mut link.who.name, &mut link.who.more, &mut link.must]
                .into_iter()
                .chain(&mut link.waits_for)
                .chain(link.facts.iter_mut().map(|it| &mut it.fact))
                .for_each(|it| self.prose(it));
        }
        near.containers.iter_mut().for_each(|it| self.prose(&mut it.fact));
        near.causes = near.causes.iter().map(|cause| self.finding(cause)).collect();
        near.notes.iter_mut().for_each(|note| self.prose(note));
        near.ruled_out.iter_mut().for_each(|other| self.prose(&mut other.fact));
        near.remedies.iter_mut().for_each(|remedy| self.remedy(remedy));
        near.next.iter_mut().for_each(|next| self.prose(next));
        near
    }

    /// A finding, shortened likewise.
    pub(super) fn finding(&mut self, finding: &Finding) -> Finding {
        let mut near = finding.clone();
        if let Some(volume) = near.volume.as_mut().filter(|volume| volume.path != near.call.path) {
            self.path(&mut volume.path);
        } else if let Some(volume) = &mut near.volume {
            // Where both are the same, one is printed, and the other compared with it.
            volume.path = self.path(&mut near.call.path).clone();
            return self.rest(near);
        }
        self.path(&mut near.call.path);
        self.rest(near)
    }

    fn remedy(&mut self, remedy: &mut Remedy) {
        if let Some(command) = &remedy.command {
            self.learn(command);
        }
        let words = [&mut remedy.advice, &mut remedy.guard].into_iter().flatten();
        words.chain([&mut remedy.risk]).chain(&mut remedy.affects).for_each(|it| self.prose(it));
    }

    fn rest(&mut self, mut near: Finding) -> Finding {
        near.evidence.iter_mut().for_each(|it| self.prose(&mut it.fact));
        self.prose(&mut near.explanation);
        near.remedies.iter_mut().for_each(|remedy| self.remedy(remedy));
        near.likely_causes_ruled_out.iter_mut().for_each(|it| self.prose(&mut it.fact));
        near.not_known.iter_mut().chain(&mut near.degraded).for_each(|it| self.prose(it));
        near
    }

    fn path<'a>(&mut self, path: &'a mut JsonPath) -> &'a JsonPath {
        let bytes = path.0.as_os_str().as_bytes();
        match &self.directory {
            Some(directory) => {
                let rest = bytes.strip_prefix(directory.as_bytes());
                if let Some(rest) = rest.filter(|rest| rest.starts_with(b"/")) {
                    let near = [ELLIPSIS.as_bytes(), rest].concat();
                    path.0 = OsStr::from_bytes(&near).into();
                }
            }
            None => self.learn(&path.parts().0),
        }
        path
    }

    /// Text between backticks is to be copied, and stays.
    pub(super) fn prose(&mut self, text: &mut String) {
        let mut is_first = self.directory.is_none();
        if is_first {
            self.learn(text);
        }
        let Some(directory) = &self.directory else { return };
        let below = format!("{directory}/");
        let mut out = String::with_capacity(text.len());
        for (n, part) in text.split('`').enumerate() {
            if n > 0 {
                out.push('`');
            }
            if n % 2 == 1 {
                is_first &= !part.contains(&below);
                out.push_str(part);
                continue;
            }
            let mut rest = part;
            while let Some(at) = rest.find(&below) {
                let (before, found) = rest.split_at(at);
                out.push_str(before);
                // A path that only contains the directory is another path.
                let begins = before.chars().next_back().is_none_or(|c| " ([\"'=:".contains(c));
                let is_whole = !begins || std::mem::take(&mut is_first);
                out.push_str(if is_whole { directory } else { ELLIPSIS });
                rest = &found[directory.len()..];
            }
            out.push_str(rest);
        }
        *text = out;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample;

    const POD: &str = "/var/lib/kubelet/pods/3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d";

    fn shortened(texts: &[String]) -> Vec<String> {
        let mut near = Near::default();
        let mut texts = texts.to_vec();
        texts.iter_mut().for_each(|text| near.prose(text));
        texts
    }

    #[test]
    fn the_first_path_is_whole_and_commands_always_are() {
        let texts = [
            format!("{POD}/volumes/x is held (\"{POD}/volumes/y\")"),
            format!("{POD}/volumes/x, `ls {POD}/volumes/x` and \"{POD}/volumes/y\""),
            format!("/proc/7/root{POD}/volumes/x and {POD} and /k/pods/other/volumes/z"),
        ];
        let shortened = shortened(&texts);
        assert_eq!(shortened[0], format!("{POD}/volumes/x is held (\"…/volumes/y\")"));
        assert_eq!(shortened[1], format!("…/volumes/x, `ls {POD}/volumes/x` and \"…/volumes/y\""));
        assert_eq!(shortened[2], texts[2], "another path, and another pod's");
    }

    #[test]
    fn a_finding_names_the_directory_once_and_its_commands_stay() {
        let mut finding = sample::finding();
        let object = finding.call.path.0.display().to_string();
        finding.evidence[0].fact = format!("{object} is busy");
        finding.remedies[0].command = Some(format!("umount {object}"));
        finding.remedies[0].guard = Some(format!("mount 7 is still at {object}"));
        let near = Near::default().finding(&finding);
        let rest = object.strip_prefix(POD).unwrap();
        assert_eq!(
            (&near.call.path, &near.remedies[0].command),
            (&finding.call.path, &finding.remedies[0].command)
        );
        assert_eq!(near.evidence[0].fact, format!("…{rest} is busy"));
        assert_eq!(near.remedies[0].guard, Some(format!("mount 7 is still at …{rest}")));
        let mut later = Near::default();
        later.learn(&format!("  where  {object}\n"));
        assert_eq!(later.finding(&finding).call.path.0.display().to_string(), format!("…{rest}"));
    }
}
