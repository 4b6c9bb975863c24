//! Whether dockerd waits for the log driver of a container that has ended and that it records as running.

use core::net::SocketAddr;
use std::{collections::BTreeMap, path::PathBuf};

use jiff::Timestamp;

use crate::{
    bounded::Bounded,
    ids,
    model::{
        evidence::Source,
        path::safe_path,
        runtime::{Differs, LogDriver, OutOfStep},
        said::{Report, Said, container_id},
    },
    query::{Answer, FindListener, Listening, Query, Question},
    tracker::TrackerId,
    verdict::Draft,
};

/// Containers remembered, and addresses asked about.
const REMEMBERED: usize = 4096;
const ADDRESSES: usize = 64;
/// Samples between two questions about an address.
const AGAIN: u32 = 8;
/// What a deletion of the task shows.
const KNOWS_END: &str =
    "dockerd has deleted the container's task, so it knows that the container has ended";

/// Deleted tasks, and whether processes listen at the addresses of log drivers.
#[derive(Default)]
pub(crate) struct Loggers {
    /// By container ID: when dockerd had the task deleted, and the log that says so.
    deleted: Bounded<String, (Timestamp, String), REMEMBERED>,
    /// By address: samples since the first question, and the last answer.
    listening: BTreeMap<SocketAddr, (u32, Option<Listening>)>,
}

impl Loggers {
    pub(crate) fn listen(&mut self, said: &Said) {
        if said.report == Some(Report::TaskDeleted)
            && let Some(id) = container_id(&said.text)
        {
            self.deleted.insert(id.to_owned(), (said.at, said.source.clone()));
        }
    }

    /// Asks whether a process listens at the driver's address, every `AGAIN` samples.
    pub(crate) fn ask(
        &mut self,
        tracker: TrackerId,
        target_id: u64,
        case: &OutOfStep,
    ) -> Option<Query> {
        let end = case.log_driver.as_ref().filter(|it| !it.is_local())?.loopback()?;
        if self.listening.len() >= ADDRESSES && !self.listening.contains_key(&end) {
            return None;
        }
        let (looks, _) = self.listening.entry(end).or_default();
        let is_due = *looks % AGAIN == 0;
        *looks += 1;
        let wants = FindListener { address: end.ip().to_string(), port: end.port() };
        is_due.then(|| Query { tracker, target_id, path: PathBuf::new(), wants: wants.into() })
    }

    pub(crate) fn answered(&mut self, query: &Query, answer: &Answer) {
        let Some((asked, found)) = FindListener::answered(query, answer) else { return };
        let Ok(ip) = asked.address.parse() else { return };
        if let Some((_, known)) = self.listening.get_mut(&SocketAddr::new(ip, asked.port)) {
            *known = found.as_ref().ok().copied();
        }
    }

    /// The log driver of a container that dockerd records as running.
    pub(crate) fn of<'a>(&'a self, case: &'a OutOfStep) -> Option<Logger<'a>> {
        let driver = case.log_driver.as_ref()?;
        let is_up = matches!(case.what, Differs::SaysUp(_));
        // A deletion before the start belongs to an earlier task.
        let is_of_now =
            |(at, _): &&(Timestamp, String)| case.started_at.is_some_and(|started| *at > started);
        let deleted = self.deleted.get(&case.container.id).filter(is_of_now);
        let end = driver.loopback();
        let listening = end.and_then(|end| self.listening.get(&end)?.1.map(|found| (end, found)));
        is_up.then_some(Logger { case, driver, deleted, listening })
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.deleted.dropped()
    }
}

/// The log driver of one container.
pub(crate) struct Logger<'a> {
    case: &'a OutOfStep,
    driver: &'a LogDriver,
    deleted: Option<&'a (Timestamp, String)>,
    listening: Option<(SocketAddr, Listening)>,
}

impl Logger<'_> {
    /// The driver's address, if no process listens there.
    fn silent(&self) -> Option<SocketAddr> {
        let (end, found) = self.listening?;
        (!found.somebody && found.unread == 0).then_some(end)
    }

    /// Whether dockerd seems to wait for the driver.
    pub(crate) fn blocks(&self) -> bool {
        !self.driver.is_local() && (self.deleted.is_some() || self.silent().is_some())
    }

    /// The driver and where it sends to.
    pub(crate) fn name(&self) -> String {
        let name = &self.driver.name;
        let default = self.driver.loopback().map(|end| end.to_string());
        match self.driver.address.clone().or(default) {
            Some(address) => format!("the log driver {name}, which sends to {address}"),
            None => format!("the log driver {name}"),
        }
    }

    /// Describes the driver as the cause.
    pub(crate) fn tell(&self, draft: &mut Draft) {
        let file = self.case.directory.join("hostconfig.json");
        draft.fact(format!("the container uses {}", self.name()), Source::file(safe_path(&file)));
        if let Some((_, log)) = self.deleted {
            draft.fact(KNOWS_END, Source::Log(log.clone()));
        }
        if let Some(end) = self.silent() {
            draft.fact(
                format!("no process listens at {end}, in any network namespace"),
                Source::proc("/proc/*/net/tcp and /proc/*/net/tcp6"),
            );
        }
        draft.explanation = "dockerd closes the log driver of a container that has ended before it lists the \
            container as ended, and waits until the driver has sent the remaining output. `docker stop`, `docker \
            kill` and `docker inspect` of the container wait as well. If kubelet uses Docker, it removes nothing of \
            the pod meanwhile."
            .into();
        let server = match self.driver.loopback() {
            Some(end) => format!("start the log server for {end} again"),
            None => format!("restore the server of {}", self.name()),
        };
        draft.advice(
            format!(
                "{server}: dockerd then sends the remaining output and lists the container as ended"
            ),
            "none",
        );
    }

    /// Adds what distinguishes a blocking log driver from a missed exit event.
    pub(crate) fn tell_apart(&self, draft: &mut Draft) {
        if self.driver.is_local() {
            let fact =
                format!("its log driver is {}, which waits for no other program", self.driver.name);
            draft.rule_out(ids::DOCKER_LOG_DRIVER_BLOCKS, fact);
        }
        if self.deleted.is_some() && self.blocks() {
            draft.rule_out(ids::DOCKER_CONTAINERD_STATE_DESYNC, KNOWS_END);
            draft.doubt(
                "whether dockerd waits for the log driver or for another part of the container's end: its stack \
                 traces would show this (on SIGUSR1, dockerd writes them to a file)",
            );
        }
    }
}
