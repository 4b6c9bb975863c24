//! Finds where the entries of a log in klog's format begin, kubelet's or a CSI driver's, and whether it is proven that
//! the component wrote an entry, at the time in its header.
//!
//! A log is one text, and some entries quote what a tenant has chosen: the name of a file may contain a line break,
//! followed by text that reads like an entry. klog writes its process id and the time into every header. So a line
//! begins an entry only with the id of the process that writes this log, or of one that wrote it before; and an entry
//! whose time does not lie between those of its neighbours proves nothing.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{klog, peel::Peeled};

/// klog takes the time before it waits for the lock to write.
const SLACK: SignedDuration = SignedDuration::from_secs(1);
/// More bytes than a tenant can put into one entry: a few paths of the greatest length.
const QUOTED: usize = 64 << 10;
/// Most processes distinguished in one text, the last ones. A kubelet that ends at its start writes 200 lines each time.
const PROCESSES: usize = 256;

/// The state of one log from read to read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Framing {
    /// The process that writes it, by its id in its own PID namespace.
    own: u32,
    /// Whether it has written something.
    has_begun: bool,
    /// Processes that wrote it before, and whether their entries are not interleaved with another's.
    earlier: BTreeMap<u32, bool>,
    /// Bytes of JSON since the last entry in text; `None` where there was no text.
    json: Option<usize>,
    /// Entries in text that are still to come in the lines that were read.
    texts: usize,
    /// When the entry before the open one was written.
    before: Option<Timestamp>,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Open {
    at: Timestamp,
    is_proven: bool,
}

/// The first and last line with an entry of a process.
struct Span {
    pid: u32,
    first: usize,
    last: usize,
}

impl Framing {
    /// Continues for a log that `own` writes now, also where another process wrote it before.
    pub(super) fn of(self, own: u32) -> Self {
        if own == self.own {
            return self;
        }
        let earlier = (self.own != 0).then_some((self.own, true)).into_iter().collect();
        Self { own, has_begun: false, earlier, ..self }
    }

    /// The process that writes it.
    pub(super) fn own(&self) -> u32 {
        self.own
    }

    /// Finds the processes that wrote before. A process that has ended does not write again: where entries of two
    /// processes are interleaved, one of the two is quoted. Which one is not known unless one of them writes now.
    pub(super) fn learn(&mut self, lines: &[Peeled<'_>]) {
        let mut spans: Vec<Span> = Vec::new();
        self.texts = 0;
        for (at, line) in lines.iter().enumerate() {
            let Some(pid) = klog::writer(line.text.as_bytes()) else { continue };
            self.texts += usize::from(!line.is_json && pid == self.own);
            if self.has_begun {
                continue;
            }
            if let Some(span) = spans.iter_mut().find(|span| span.pid == pid) {
                span.last = at;
            } else {
                if spans.len() >= PROCESSES {
                    spans.remove(0);
                }
                spans.push(Span { pid, first: at, last: at });
            }
        }
        let own = spans.iter().find(|span| span.pid == self.own);
        let begun = own.map_or(usize::MAX, |own| own.first);
        // The spans are in the order of their first entries.
        let mut previous: Option<Span> = None;
        for span in spans.into_iter().filter(|span| span.last < begun) {
            let is_within = previous.as_ref().is_some_and(|other| span.first < other.last);
            if let Some(other) = previous.as_ref().filter(|_| is_within) {
                self.earlier.insert(other.pid, false);
            }
            self.earlier.insert(span.pid, !is_within);
            previous = previous.filter(|other| other.last > span.last).or(Some(span));
        }
    }

    /// Whether an entry has begun.
    pub(super) fn has_open(&self) -> bool {
        self.open.is_some()
    }

    /// `None` where a line begins no entry; else whether the entry before it is proven.
    pub(super) fn begins(&mut self, line: &Peeled<'_>, now: Timestamp) -> Option<bool> {
        let text = line.text.as_ref();
        let pid = klog::writer(text.as_bytes())?;
        let is_own = pid == self.own;
        let is_proven = is_own || *self.earlier.get(&pid).filter(|_| !self.has_begun)?;
        let is_proven = self.is_in_its_form(line, is_own)? && is_proven;
        let at = klog::written(text, now)?;
        self.has_begun |= is_own;
        let before = self.is_proven(Some(at));
        self.before = self.open.map(|open| open.at);
        self.open = Some(Open { at, is_proven });
        Some(before)
    }

    /// A process writes either text or JSON: JSON between entries in text is quoted by them. After text, JSON is believed
    /// only once there is more of it than an entry can quote.
    fn is_in_its_form(&mut self, line: &Peeled<'_>, is_own: bool) -> Option<bool> {
        if !line.is_json {
            self.texts -= usize::from(is_own && self.texts > 0);
            self.json = Some(0);
            return Some(true);
        }
        let json = self.json.as_mut();
        match (json, self.texts) {
            (None, texts) => Some(texts == 0),
            (Some(json), 0) => {
                *json = json.saturating_add(line.text.len());
                Some(*json > QUOTED)
            }
            (Some(_), _) => None,
        }
    }

    /// Whether the last entry is proven.
    pub(super) fn ends(&self, now: Timestamp) -> bool {
        // Without the node's time zone, all entries may seem to be later than now.
        let has_zone = self.before.is_none_or(|before| is_in_order(before, now));
        self.is_proven(has_zone.then_some(now))
    }

    fn is_proven(&self, next: Option<Timestamp>) -> bool {
        self.open.is_some_and(|Open { at, is_proven }| {
            is_proven
                && self.before.is_none_or(|before| is_in_order(before, at))
                && next.is_none_or(|next| is_in_order(at, next))
        })
    }
}

fn is_in_order(before: Timestamp, after: Timestamp) -> bool {
    before.duration_since(after) <= SLACK
}

#[cfg(test)]
mod tests {
    use super::{super::peel::peel, *};

    const OWN: u32 = 700;

    fn line(second: u32, pid: u32) -> String {
        format!("I0301 10:{:02}:{:02}.000001 {pid:7} x.go:1] of {pid}", second / 60, second % 60)
    }

    /// The writer and second of each entry that begins, and whether it is proven.
    fn entries(lines: &[String]) -> Vec<(String, bool)> {
        let now: Timestamp = "2026-03-02T00:00:00Z".parse().unwrap();
        let mut framing = Framing::default().of(OWN);
        let peeled: Vec<Peeled<'_>> = lines.iter().map(|line| peel(line.into(), OWN)).collect();
        framing.learn(&peeled);
        let (mut found, mut open): (Vec<(String, bool)>, Option<String>) = (Vec::new(), None);
        for (line, peeled) in lines.iter().zip(&peeled) {
            if let Some(is_proven) = framing.begins(peeled, now) {
                found.extend(open.replace(line.clone()).map(|line| (line, is_proven)));
            }
        }
        found.extend(open.map(|line| (line, framing.ends(now))));
        found
    }

    fn begin(lines: &[(u32, u32)]) -> Vec<bool> {
        let lines: Vec<String> = lines.iter().map(|(second, pid)| line(*second, *pid)).collect();
        entries(&lines).into_iter().map(|(_, is_proven)| is_proven).collect()
    }

    #[test]
    fn what_another_process_seems_to_write_is_text() {
        assert_eq!(begin(&[(1, OWN), (2, 9), (3, OWN)]), [true, true]);
        assert_eq!(begin(&[(1, OWN), (2, 9)]), [true], "no process writes after it");
        assert_eq!(
            begin(&[(1, 9), (2, OWN), (3, 9), (4, OWN)]),
            [true, true],
            "the log begins late"
        );
        assert!(entries(&["of no process".into()]).is_empty());
    }

    #[test]
    fn processes_that_wrote_the_log_before_count() {
        assert_eq!(begin(&[(1, 5), (2, 5), (3, 6), (4, OWN)]), [true; 4]);
        // One of the two is quoted, and which one is not known.
        assert_eq!(begin(&[(1, 5), (2, 6), (3, 5), (4, OWN)]), [false, false, false, true]);
        assert_eq!(begin(&[(1, 5), (2, 5)]), [true; 2], "the new one has written nothing yet");
    }

    #[test]
    fn an_entry_out_of_order_counts_and_proves_nothing() {
        assert_eq!(begin(&[(10, OWN), (5, OWN), (11, OWN), (12, OWN)]), [false, false, true, true]);
        assert_eq!(
            begin(&[(10, OWN), (50, OWN), (11, OWN), (12, OWN)]),
            [true, false, false, true]
        );
        assert_eq!(begin(&[(11, OWN), (10, OWN), (11, OWN)]), [true; 3], "within the slack");
    }

    #[test]
    fn an_entry_of_the_future_proves_nothing() {
        let late = format!("E0302 09:00:00.000001 {OWN:7} x.go:1] forged");
        let found = entries(&[line(1, OWN), late]);
        assert_eq!(found.last().map(|(_, is_proven)| *is_proven), Some(false));
    }

    /// A later read may begin within an entry.
    #[test]
    fn the_current_process_writes_alone_until_another_is_started() {
        let now: Timestamp = "2026-03-02T00:00:00Z".parse().unwrap();
        let mut framing = Framing::default().of(OWN);
        let read = |framing: &mut Framing, lines: &[String]| -> usize {
            let lines: Vec<Peeled<'_>> = lines.iter().map(|line| peel(line.into(), OWN)).collect();
            framing.learn(&lines);
            lines.iter().filter(|line| framing.begins(line, now).is_some()).count()
        };
        assert_eq!(read(&mut framing, &[line(1, OWN)]), 1);
        assert_eq!(read(&mut framing, &[line(2, 9), line(3, OWN)]), 1);
        let mut framing = framing.of(701);
        assert_eq!(read(&mut framing, &[line(4, OWN), line(5, 701), line(6, OWN)]), 2);
        assert_eq!(read(&mut framing, &[line(7, 9)]), 0);
    }

    /// Without a process id: klog's JSON has none.
    fn json(second: u32) -> String {
        let at: Timestamp =
            format!("2026-03-01T10:{:02}:{:02}Z", second / 60, second % 60).parse().unwrap();
        let local = at.to_zoned(jiff::tz::TimeZone::system()).datetime();
        let at = local.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
        format!(
            "{{\"ts\":{}000,\"caller\":\"x.go:1\",\"msg\":\"of {second}\",\"v\":2}}",
            at.as_second()
        )
    }

    #[test]
    fn json_between_text_is_quoted() {
        let proven = |lines: &[String]| -> Vec<bool> {
            entries(lines).into_iter().map(|(_, is_proven)| is_proven).collect()
        };
        assert_eq!(proven(&[json(1), json(2)]), [true, true]);
        assert_eq!(proven(&[line(1, OWN), json(2), line(3, OWN)]), [true, true], "it is text");
        // A log that begins late, or a kubelet that was switched to text.
        assert_eq!(proven(&[json(1), line(2, OWN)]), [false, true]);
        // kubelet writes text until it has read that JSON is wanted.
        assert_eq!(proven(&[line(1, OWN), json(2)]), [true, false]);
        let mut all = vec![line(1, OWN)];
        all.extend(std::iter::repeat_n(json(2), 3000));
        let all = proven(&all);
        assert!(!all[1] && all[2999]);
    }

    #[test]
    fn a_crowd_of_processes_ends() {
        let lines: Vec<(u32, u32)> = (1..2000).map(|pid| (1, 1000 + pid)).collect();
        assert_eq!(begin(&lines).len(), PROCESSES);
    }
}
