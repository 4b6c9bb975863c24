//! Values of every output type, for tests, with names chosen by others in every place that can hold one.

use std::{collections::BTreeMap, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use podstuck_common::count::CallTotals;
use proptest::{collection::vec, prelude::*, sample::select};

use super::sample;
use podstuck_model::{
    call::{Call, Outcome},
    chain::{Link, Who},
    container::{ContainerName, ContainerProgress, ContainerStage},
    diagnosis::{Diagnosis, PodStage, Stage, Terminating},
    evidence::{Evidence, RuledOut, Source},
    finding::{Finding, FindingState, Progress},
    holder::{Holder, Search},
    hung::Hung,
    identity::{Actor, Component, Parent, Pod, Volume},
    path::JsonPath,
    remedy::Remedy,
    said::Said,
    series::{NamesTable, Series, SeriesKey, SeriesTable, Span, TargetNames},
    summary::{Completeness, Start, Summary},
};

/// Names that others may choose, in the order in which they are used.
pub(crate) struct Foreign {
    names: Vec<Vec<u8>>,
    given: usize,
}

impl Foreign {
    pub(crate) fn new(names: Vec<Vec<u8>>) -> Self {
        Self { names, given: 0 }
    }

    /// Names for [`Self::new`].
    pub(crate) fn any() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let of_text = |text: &'static str| Just(text.as_bytes().to_vec());
        let part = prop_oneof![
            4 => any::<char>().prop_map(|c| c.to_string().into_bytes()),
            2 => vec(any::<u8>(), 1..4),
            2 => select(&b"\n\r\t\x1b\x7f\"\\'`{}=,;%$ "[..]).prop_map(|byte| vec![byte]),
            2 => (0x2000_u32..0x2070).prop_map(|c| char::from_u32(c).unwrap().to_string().into_bytes()),
            1 => (0xe0000_u32..0xe0200).prop_map(|c| char::from_u32(c).unwrap().to_string().into_bytes()),
            2 => prop_oneof![of_text("\u{9b}31m"), of_text("\u{ad}"), of_text("\u{3164}"), of_text("\u{a0}")],
            2 => of_text("name"),
            1 => of_text("\nFORGED"),
        ];
        vec(vec(part, 0..8).prop_map(|parts| parts.concat()), 1..24)
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.given += 1;
        self.names[self.given % self.names.len()].clone()
    }

    pub(crate) fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    fn some(&mut self) -> Option<String> {
        Some(self.text())
    }

    fn path(&mut self) -> JsonPath {
        JsonPath(Path::new(OsStr::from_bytes(&self.bytes())).into())
    }

    pub(crate) fn pod(&mut self) -> Pod {
        Pod { uid: self.text(), namespace: self.some(), name: self.some() }
    }

    fn volume(&mut self) -> Volume {
        Volume { name: self.text(), plugin: self.text(), path: self.path() }
    }

    pub(crate) fn finding(&mut self, state: FindingState) -> Finding {
        let of = sample::finding();
        let since = sample::time(0);
        let mut way = Remedy::command(&*self.text(), self.text(), self.text());
        (way.guard, way.verify, way.affects) = (self.some(), self.some(), vec![self.text()]);
        let mut call = of.call;
        call.path = self.path();
        let sources = [
            Source::mountinfo(self.text()),
            Source::proc(self.text()),
            Source::file(self.text()),
            Source::Log(self.text()),
        ];
        Finding {
            state,
            instance: self.text(),
            pod: Some(self.pod()),
            container: self.some(),
            container_name: self.some(),
            volume: Some(self.volume()),
            actor: Some(Actor {
                pid: 1,
                started: None,
                comm: self.text(),
                cgroup: self.some(),
                component: Component::Workload,
                pod: Some(self.pod()),
                parent: Some(Parent { pid: 1, comm: self.text() }),
            }),
            call,
            held_by: Some(Who::object(self.text())),
            chain: Vec::new(),
            must: None,
            waits_for: None,
            evidence: sources.map(|source| Evidence { fact: self.text(), source, since }).to_vec(),
            explanation: self.text(),
            remedies: vec![way, Remedy::advice(self.text(), self.text())],
            likely_causes_ruled_out: vec![self.ruled_out()],
            not_known: vec![self.text()],
            degraded: vec![self.text()],
            ..sample::finding()
        }
    }

    fn ruled_out(&mut self) -> RuledOut {
        RuledOut { fact: self.text(), ..sample::ruled_out("") }
    }

    fn said(&mut self) -> Said {
        Said {
            uid: self.text(),
            component: Component::Kubelet,
            volume: self.text(),
            at: sample::time(0),
            retry: Some(sample::time(1)),
            complaint: None,
            looked: None,
            devices: Vec::new(),
            level: podstuck_model::said::Level::Error,
            report: None,
            text: self.text(),
            source: self.text(),
            times: 2,
        }
    }

    pub(crate) fn diagnosis(&mut self) -> Diagnosis {
        Diagnosis {
            target: self.some(),
            stages: vec![PodStage {
                pod: self.pod(),
                stage: Stage::Volumes,
                fact: self.text(),
                chain: vec![Link {
                    waits_for: self.some(),
                    ..Link::new(Who::object(self.text()), self.text(), self.text(), self.text())
                }],
                complete: Some(false),
                not_visible: self.some(),
            }],
            containers: vec![ContainerProgress {
                container: ContainerName {
                    id: self.text(),
                    name: self.some(),
                    pod: Some(self.pod()),
                },
                stage: ContainerStage::Layer,
                fact: self.text(),
            }],
            firm: true,
            terminating: Some(Terminating { since: sample::time(0), by: self.text() }),
            gone: None,
            progress: vec![self.progress()],
            window_s: 1.0,
            causes: vec![self.finding(FindingState::New)],
            notes: vec![self.text()],
            over: vec![self.finding(FindingState::Cleared)],
            said: vec![self.said()],
            remedies: vec![Remedy::advice(self.text(), self.text())],
            ruled_out: vec![self.ruled_out()],
            next: vec![self.text()],
        }
    }

    pub(crate) fn hung(&mut self) -> Hung {
        Hung {
            syscall: self.text(),
            path: self.path(),
            comm: self.text(),
            wchan: self.some(),
            stack: vec![self.text()],
            victim: Some(self.pod()),
            volume: Some(self.volume()),
            ..sample::hung()
        }
    }

    pub(crate) fn progress(&mut self) -> Progress {
        Progress { path: self.path(), pod: Some(self.pod()), ..sample::progress() }
    }

    pub(crate) fn start(&mut self) -> Start {
        Start {
            version: self.text(),
            kernel: self.text(),
            backend: self.text(),
            probes_attached: vec![self.text()],
            probes_missing: vec![self.text()],
            not_covered: vec![self.text()],
            target: self.some(),
            roots_searched: vec![self.text()],
            api: self.some(),
        }
    }

    pub(crate) fn summary(&mut self) -> Summary {
        let by_name = BTreeMap::from([(self.text(), 3)]);
        Summary {
            by_outcome: BTreeMap::from([("unlinkat", by_name)]),
            completeness: Completeness {
                events_lost: 1,
                probes_missing: vec![self.text()],
                ..Completeness::default()
            },
            ..sample::summary()
        }
    }

    pub(crate) fn holder(&mut self) -> Holder {
        let mut holder = sample::holder();
        (holder.object, holder.mount.point) = (self.path(), self.path());
        (holder.comm, holder.cgroup, holder.container) = (self.some(), self.some(), self.some());
        (holder.pod, holder.source) = (Some(self.pod()), self.text());
        holder
    }

    pub(crate) fn search(&mut self) -> Search {
        let mut search = sample::search();
        (search.subject.path, search.subject.what) = (self.path(), self.text());
        search.subject.device = self.text();
        search.unseen = vec![self.text()];
        search
    }

    pub(crate) fn series(&mut self) -> SeriesTable {
        let mut counts = Series::default();
        counts.add(9, CallTotals { calls: 2, total_ns: 900, min_ns: 440, max_ns: 460 });
        let key = |pod, volume, container, errno| SeriesKey {
            span: Span::Call(Call::Unlink),
            outcome: Outcome(errno),
            pod,
            volume,
            container,
            component: Component::Other,
        };
        let mut named = |errno| key(self.text(), self.text(), self.text(), errno);
        (0..4).map(|errno| (named(errno), counts.clone())).collect()
    }

    /// Names of the targets of series.
    pub(crate) fn names(&mut self, series: &SeriesTable) -> NamesTable {
        let keys = series.keys().map(SeriesKey::target);
        let named = |key| {
            let names =
                TargetNames { namespace: self.text(), pod_name: self.text(), plugin: self.text() };
            (key, names)
        };
        keys.map(named).collect()
    }
}
