use super::*;
use crate::stuck::tests::finding;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn board() -> Board {
    Board::new("n1", Memory::default())
}

fn take(board: &mut Board, uid: &str, cause: &str, state: &str, at: u64) {
    board.take(&finding(uid, cause, state, "firm"), s(at), 0.5);
}

/// Collects the writes of these seconds, each with its second. Every write succeeds.
fn play(board: &mut Board, seconds: std::ops::Range<u64>) -> Vec<(u64, Write)> {
    let mut all = Vec::new();
    for at in seconds {
        while let Some(write) = board.due(s(at)) {
            board.done(write.clone(), Outcome::Done, s(at));
            all.push((at, write));
        }
    }
    all
}

fn shown(written: &[(u64, Write)]) -> Vec<String> {
    let shown = written.iter().map(|(at, write)| match write {
        Write::Pod { stuck, replaces } => {
            let replaces = if replaces.is_empty() { "" } else { " again" };
            format!("{at} pod {} {}{replaces}", stuck.pod.uid, stuck.cause)
        }
        Write::Node { note, .. } => format!("{at} node {}", note.split(':').next().unwrap()),
        Write::Renew { count, .. } => format!("{at} renew {count}"),
        Write::Over(Over { pod, is_released, cause, .. }) => {
            let released = pod.as_ref().filter(|_| *is_released);
            format!("{at} over {cause} {}", released.map_or("-", |pod| &pod.uid))
        }
    });
    shown.collect()
}

#[test]
fn one_stuck_pod_is_said_within_a_minute_kept_alive_and_taken_back() {
    let mut board = board();
    take(&mut board, "u", "down", "new", 100);
    take(&mut board, "u", "down", "update", 200);
    let mut all = play(&mut board, 100..2000);
    take(&mut board, "u", "down", "cleared", 2000);
    all.extend(play(&mut board, 2000..4000));
    assert_eq!(shown(&all), ["130 pod u down", "1930 renew 2", "2015 over down u"]);
    assert_eq!((board.memory(), board.pending()), (Memory::default(), 0));
}

#[test]
fn an_outage_is_one_event_of_the_node_and_then_one_pod_a_minute() {
    let mut board = board();
    for pod in 0..30 {
        take(&mut board, &format!("u{pod:02}"), "down", "new", 100);
    }
    let all = play(&mut board, 100..700);
    let shown = shown(&all);
    assert_eq!(
        shown[..3],
        ["130 node 30 pods are stuck by down", "190 pod u00 down", "250 pod u01 down"]
    );
    assert_eq!(shown.len(), 10, "{shown:?}");
    assert_eq!(board.pending(), 21);
    // All pods are released at once: written Events are taken back, the others are never written.
    for pod in 0..30 {
        take(&mut board, &format!("u{pod:02}"), "down", "cleared", 700);
    }
    let over: Vec<u64> = play(&mut board, 700..1100).into_iter().map(|(at, _)| at).collect();
    assert_eq!(over, (0..10).map(|nth| 715 + 30 * nth).collect::<Vec<_>>());
    assert_eq!((board.counts().written, board.counts().outrun), (20, 21));
}

#[test]
fn another_verdict_takes_the_place_of_the_old_one_and_releases_nobody() {
    let mut board = board();
    take(&mut board, "u", "hang", "new", 0);
    assert_eq!(shown(&play(&mut board, 0..100)), ["30 pod u hang"]);
    board.take(&finding("u", "hang", "update", "likely"), s(100), 0.5);
    assert_eq!(shown(&play(&mut board, 100..200)), ["100 pod u hang again"]);
    take(&mut board, "u", "hang", "cleared", 200);
    take(&mut board, "u", "frozen", "new", 200);
    assert_eq!(shown(&play(&mut board, 200..300)), ["215 over hang -", "230 pod u frozen"]);
}

#[test]
fn an_agent_that_restarts_says_nothing_twice_and_takes_back_what_is_over() {
    let mut first = board();
    for uid in ["u", "v"] {
        take(&mut first, uid, "down", "new", 0);
    }
    let all = play(&mut first, 0..200);
    assert_eq!(all.len(), 3);
    let text = serde_json::to_string(&first.memory()).unwrap();
    let mut second = Board::new("n1", serde_json::from_str(&text).unwrap());
    take(&mut second, "u", "down", "new", 10);
    let all = play(&mut second, 10..400);
    // The time of the last write is unknown after a restart, so the Event is renewed.
    assert_eq!(shown(&all), ["40 renew 2", "315 over down v", "345 over down -"]);
}

#[test]
fn the_nodes_count_is_corrected_once_most_pods_have_gone() {
    let mut board = board();
    for pod in 0..6 {
        take(&mut board, &format!("u{pod}"), "down", "new", 0);
    }
    assert_eq!(play(&mut board, 0..1000).len(), 7);
    for pod in 0..4_u64 {
        take(&mut board, &format!("u{pod}"), "down", "cleared", 1000 + 10 * pod);
        let over = play(&mut board, 1000 + 10 * pod..1010 + 10 * pod);
        assert!(over.iter().all(|(_, write)| matches!(write, Write::Over(_))), "{over:?}");
    }
    let all = shown(&play(&mut board, 1040..1200));
    assert!(all.contains(&"1090 node 2 pods are stuck by down".to_owned()), "{all:?}");
}

#[test]
fn what_is_over_is_taken_back_by_the_next_agent() {
    let mut first = board();
    for uid in ["u", "v"] {
        take(&mut first, uid, "down", "new", 0);
    }
    assert_eq!(play(&mut first, 0..200).len(), 3);
    for uid in ["u", "v"] {
        take(&mut first, uid, "down", "cleared", 200);
    }
    // It is killed while it takes the first one back.
    assert!(matches!(first.due(s(215)), Some(Write::Over(_))));
    let all = play(&mut Board::new("n1", first.memory()), 0..500);
    assert_eq!(shown(&all), ["300 over down u", "330 over down v", "360 over down -"]);
}

#[test]
fn what_the_api_server_refuses_is_not_asked_again_and_what_it_has_no_time_for_is() {
    let mut board = board();
    take(&mut board, "u", "down", "new", 0);
    take(&mut board, "v", "frozen", "new", 0);
    let first = board.due(s(30)).unwrap();
    board.done(first.clone(), Outcome::Later, s(30));
    assert_eq!(board.due(s(89)), None);
    assert_eq!(board.due(s(90)), Some(first.clone()));
    board.done(first.clone(), Outcome::Later, s(90));
    assert_eq!(board.due(s(209)), None, "less and less often");
    assert_eq!(board.due(s(210)), Some(first.clone()));
    board.done(first, Outcome::Refused, s(210));
    assert_eq!(shown(&play(&mut board, 210..500)), ["270 pod v frozen"]);
    take(&mut board, "u", "down", "cleared", 500);
    assert_eq!(shown(&play(&mut board, 500..600)), Vec::<String>::new());
    assert_eq!((board.counts().refused, board.counts().outrun), (1, 0));
}

#[test]
fn what_the_api_server_denies_is_asked_again_after_the_others_and_then_no_more() {
    let mut board = board();
    take(&mut board, "u", "down", "new", 0);
    take(&mut board, "v", "frozen", "new", 0);
    let mut asked = Vec::new();
    for at in 30..3000 {
        let Some(write) = board.due(s(at)) else { continue };
        asked.extend(shown(&[(at, write.clone())]));
        let is_denied = matches!(&write, Write::Pod { stuck, .. } if stuck.pod.uid == "u");
        board.done(write, if is_denied { Outcome::Denied } else { Outcome::Done }, s(at));
    }
    let expected = [
        "30 pod u down",
        "90 pod v frozen",
        "150 pod u down",
        "210 pod u down",
        "330 pod u down",
        "1890 renew 2",
    ];
    assert_eq!(asked, expected);
    assert_eq!((board.counts().refused, board.pending()), (1, 0));
    take(&mut board, "u", "down", "cleared", 3000);
    assert_eq!(shown(&play(&mut board, 3000..3100)), Vec::<String>::new());
}

#[test]
fn no_event_is_forgotten_while_many_pods_wait() {
    let mut board = board();
    for pod in 0..200 {
        take(&mut board, &format!("u{pod:03}"), "down", "new", 0);
    }
    let mut written = BTreeMap::new();
    for (at, write) in play(&mut board, 0..4 * 3600) {
        let name = match write {
            Write::Pod { stuck, .. } => stuck.event_name(),
            Write::Node { name, .. } | Write::Renew { name, .. } => name,
            Write::Over(over) => panic!("{over:?}"),
        };
        written.insert(name, at);
    }
    assert!(written.len() >= 40 && written.values().all(|at| *at > 3 * 3600), "{written:?}");
    assert_eq!(board.pending(), 201 - written.len(), "the others are counted");
}

#[test]
fn what_ends_while_it_is_written_is_taken_back() {
    let mut board = board();
    take(&mut board, "u", "down", "new", 0);
    let write = board.due(s(30)).unwrap();
    take(&mut board, "u", "down", "cleared", 30);
    board.done(write, Outcome::Done, s(31));
    assert_eq!(shown(&play(&mut board, 31..60)), ["45 over down u"]);
}

#[test]
fn an_event_that_the_api_server_has_forgotten_is_written_again() {
    let mut board = board();
    take(&mut board, "u", "down", "new", 0);
    play(&mut board, 0..100);
    let renew = board.due(s(1900)).unwrap();
    assert!(matches!(renew, Write::Renew { .. }), "{renew:?}");
    board.done(renew, Outcome::Gone, s(1900));
    assert_eq!(shown(&play(&mut board, 1900..2000)), ["1960 pod u down"]);
}

#[test]
fn a_flood_is_counted_and_bounded() {
    let mut board = board();
    for pod in 0..REMEMBERED + 3 {
        take(&mut board, &format!("u{pod}"), "down", "new", 0);
    }
    assert_eq!((board.pending(), board.counts().dropped), (REMEMBERED, 3));
}
