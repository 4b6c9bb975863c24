//! Fairness by a clock that stands still while something runs: what is asserted is turns, and time that was slept.

use std::path::PathBuf;

use podstuck_model::tracker_id::TrackerId;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Duration, sleep},
};

use super::{waiting::OF_A_POD, *};
use podstuck_model::{path::JsonPath, query::ReadAttributes, time::Monotonic};

/// Duration of reading an inode, and of a search for holders.
const INODE: Duration = Duration::from_millis(5);
const SEARCH: Duration = Duration::from_millis(100);

/// Answers after that time; a search that is slow takes longer.
#[derive(Clone)]
struct Fake {
    search: Duration,
    /// What each search was about.
    searches: Arc<Mutex<Vec<usize>>>,
}

impl Look for Fake {
    async fn answer(&self, _: Share, wants: Wants) -> Answer {
        // One that hangs.
        let hangs = matches!(&wants, Wants::Attributes(ReadAttributes { pid: 0, .. }));
        sleep(if hangs { 400 * INODE } else { INODE }).await;
        Answer::Attributes(Err(NoAnswer::Refused("it is gone".into())))
    }

    async fn holders(&self, about: Vec<About>) -> Result<Vec<Snapshot>, NoAnswer> {
        self.searches.lock().unwrap().push(about.len());
        sleep(self.search).await;
        let subject = Err("it is no mount point any more".into());
        let at = Monotonic(0);
        let (holders, unseen) = (Vec::new(), Vec::new());
        let taken = Snapshot { at, subject, holders, unseen, looked_at: (0, 0, 0) };
        Ok(vec![taken; about.len()])
    }
}

struct Bench {
    asker: Asker<Fake>,
    answers: UnboundedReceiver<(Query, Answer)>,
    fake: Fake,
    begun: Instant,
}

impl Bench {
    fn new(search: Duration) -> Self {
        let (sender, answers) = unbounded_channel();
        let fake = Fake { search, searches: Arc::default() };
        let asker = Asker::new(fake.clone(), sender);
        Self { asker, answers, fake, begun: Instant::now() }
    }

    fn ask(&self, pod: u64, wants: Wants) {
        self.ask_by(TrackerId::Busy, pod, wants);
    }

    fn ask_by(&self, tracker: TrackerId, pod: u64, wants: Wants) {
        let path = PathBuf::from(format!("/{wants:?}"));
        let path = if matches!(wants, Wants::Holders(_)) { path } else { "/".into() };
        let query = Query { tracker, target_id: pod, path, wants };
        self.asker.ask(Share::Pod(pod.to_string()), query);
    }

    /// The next answer: its pod, and when it came.
    async fn next(&mut self) -> (u64, Duration) {
        let (query, _) = self.answers.recv().await.unwrap();
        (query.target_id, self.begun.elapsed())
    }

    /// Number of answers to other questions before one of this pod.
    async fn turns_before(&mut self, pod: u64) -> usize {
        let mut before = 0;
        while self.next().await.0 != pod {
            before += 1;
        }
        before
    }

    fn searches(&self) -> Vec<usize> {
        self.fake.searches.lock().unwrap().clone()
    }
}

fn inode(pid: u32, name: usize) -> Wants {
    let name = name.to_string().into();
    ReadAttributes { pid, directory: "/v".into(), name, expected: (0, 0) }.into()
}

fn holders(volume: usize) -> Wants {
    let path = JsonPath(format!("/v{volume}").into());
    Wants::Holders(About::Mount { pid: 7, namespace: 1, path })
}

#[tokio::test(start_paused = true)]
async fn a_search_for_holders_delays_no_look_at_an_inode() {
    let mut bench = Bench::new(Duration::from_secs(20));
    (0..30).for_each(|pod| bench.ask(pod, holders(0)));
    // The search is under way.
    sleep(SEARCH).await;
    bench.ask(99, inode(7, 0));
    assert_eq!(bench.next().await, (99, SEARCH + INODE));
    // Neither does its rest.
    while bench.next().await.0 != 29 {}
    bench.ask(1, holders(1));
    let before = bench.begun.elapsed();
    bench.ask(99, inode(7, 0));
    assert_eq!(bench.next().await, (99, before + INODE));
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_many_questions_delays_another_by_one_turn() {
    let mut bench = Bench::new(SEARCH);
    (0..1000).for_each(|name| bench.ask(1, inode(7, name)));
    (0..1000).for_each(|name| bench.ask(2, inode(7, name)));
    bench.ask(3, inode(7, 0));
    // Those of both that are under way, and one more of each at most.
    let before = bench.turns_before(3).await;
    assert!(before <= 4, "{before} turns");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_looks_hang_takes_one_turn() {
    let mut bench = Bench::new(SEARCH);
    (0..10).for_each(|name| bench.ask(1, inode(0, name)));
    (0..10).for_each(|name| bench.ask(2, inode(7, name)));
    for turn in 1..=10 {
        assert_eq!(bench.next().await, (2, turn * INODE));
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_the_pods_own_and_is_counted() {
    let mut bench = Bench::new(SEARCH);
    bench.ask(1, inode(7, 0));
    (0..1000).for_each(|name| bench.ask(2, inode(7, name)));
    assert_eq!(bench.asker.dropped(), 1000 - OF_A_POD as u64);
    assert_eq!(bench.asker.open(), 1 + OF_A_POD);
    assert_eq!(bench.next().await.0, 1);
    // It is the oldest that went.
    let (query, _) = bench.answers.recv().await.unwrap();
    assert_eq!(query.wants, inode(7, 1000 - OF_A_POD));
    assert!(bench.asker.degraded().is_none());
    for pod in 3..400 {
        (0..OF_A_POD).for_each(|name| bench.ask(pod, inode(7, name)));
    }
    assert!(bench.asker.degraded().is_some());
    // The last pod lost a question to none that has more.
    bench.ask(999, inode(7, 0));
    let mut last = 0;
    while bench.asker.open() > 0 || !bench.answers.is_empty() {
        last += usize::from(bench.next().await.0 == 999);
    }
    assert_eq!(last, 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_question_is_asked_once_about_the_last_failure() {
    let mut bench = Bench::new(SEARCH);
    // Each attempt is a process of its own.
    (1..100).for_each(|pid| bench.ask(1, inode(pid, 0)));
    let (query, _) = bench.answers.recv().await.unwrap();
    assert_eq!(query.wants, inode(99, 0));
    assert_eq!((bench.asker.open(), bench.asker.dropped()), (0, 0));
}

/// kubelet's log may name ten objects of a pod, and what is refused now comes last.
#[tokio::test(start_paused = true)]
async fn of_what_is_refused_in_a_target_the_last_object_is_looked_at_and_no_other() {
    let mut bench = Bench::new(SEARCH);
    for name in 0..10 {
        (0..200).for_each(|pod| bench.ask_by(TrackerId::Refused, pod, inode(7, name)));
    }
    assert_eq!(bench.asker.open(), 200);
    for _ in 0..200 {
        let (query, _) = bench.answers.recv().await.unwrap();
        assert_eq!(query.wants, inode(7, 9));
    }
    assert_eq!((bench.asker.open(), bench.asker.dropped()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_search_answers_all_that_wait() {
    let mut bench = Bench::new(SEARCH);
    for _ in 0..3 {
        (0..30).for_each(|pod| (0..2).for_each(|volume| bench.ask(pod, holders(volume))));
    }
    for _ in 0..60 {
        assert_eq!(bench.next().await.1, SEARCH);
    }
    assert_eq!(bench.searches(), [60]);
    assert_eq!((bench.asker.open(), bench.asker.dropped()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn searches_rest_and_who_is_new_waits_less() {
    let long = Duration::from_millis(500);
    let mut bench = Bench::new(long);
    let second = Duration::from_secs(1);
    bench.ask(1, holders(0));
    assert_eq!(bench.next().await.1, long);
    // The second attempt makes the finding.
    bench.ask(1, holders(0));
    assert_eq!(bench.next().await.1, long + second + long);
    // Asked again and again, it costs a tenth of the time.
    let before = bench.begun.elapsed();
    bench.ask(1, holders(0));
    assert_eq!(bench.next().await.1, before + 10 * long);
    let before = bench.begun.elapsed();
    bench.ask(1, holders(0));
    sleep(SEARCH).await;
    bench.ask(2, holders(0));
    let soon = before + second + long;
    assert_eq!(bench.next().await.1, soon);
    assert_eq!(bench.next().await.1, soon);
    assert_eq!(bench.searches(), [1, 1, 1, 2]);
    // At the end there is nothing to rest for.
    bench.ask(1, holders(0));
    bench.asker.end();
    assert_eq!(bench.next().await.1, soon + long);
}
