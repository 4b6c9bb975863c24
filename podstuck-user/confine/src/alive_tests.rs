use super::*;
use crate::proc::parse_mounts;

#[test]
fn a_file_system_that_answers_is_entered() {
    let own = std::process::id();
    assert_eq!(why_not(own, Path::new("/proc/self"), Occasion::Unknown), None);
}

#[test]
fn a_server_on_which_a_call_hangs_is_left_alone_with_what_is_below_it() {
    let text = b"1 0 8:1 / / rw - tmpfs a rw\n2 1 0:4194299 / /n\\040 rw - nfs4 s:/x rw\n\
        3 2 0:4194298 / /n\\040/t rw - tmpfs t rw\n4 1 0:4194297 / /o rw - nfs4 s:/y rw\n";
    let table = parse_mounts(7, text);
    let why = |path: &str| why_not_in(&table, Path::new(path), Occasion::Answered);
    let on = MountPoint { fs_type: "nfs4".into(), minor: 4_194_299, ..MountPoint::default() };
    assert_eq!(why("/n /t/x"), None);
    hangs(4_194_999, &on);
    let reason = why("/n /t/x").unwrap();
    assert!(reason.contains("/n\\x20") || reason.contains("/n "), "{reason}");
    assert!(reason.contains("a call hangs"), "{reason}");
    assert_eq!((why("/o/x"), why("/")), (None, None));
    let looks = ["/n /t", "/o"].map(|path| (Some(&table), Path::new(path)));
    assert_eq!(left_out(Feed::Logs, looks.into_iter()), [true, false]);
    // Places that other scans leave out are reported, too.
    let is_reported = || degraded().iter().any(|it| it.place.as_deref() == Some("/n /t".as_ref()));
    assert!(is_reported());
    hangs_no_more(4_194_999);
    assert_eq!(left_out(Feed::Logs, looks.into_iter()), [false, false]);
    assert!(!is_reported() && why("/n ").is_none());
}

#[test]
fn a_silent_file_system_is_entered_again_only_after_a_pause() {
    let text = b"1 0 8:1 / / rw - ext4 a rw\n2 1 0:4194280 / /k rw - fuse.s s rw\n\
        3 1 0:4194280 /pods /proc/7/root/k rw - fuse.s s rw\n";
    let table = parse_mounts(7, text);
    let why = |path: &str| why_not_in(&table, Path::new(path), Occasion::Unknown);
    let came_to = |path: &str, answer| came_to_on(&table, Path::new(path), answer);
    came_to("/other", false);
    assert_eq!((why("/other"), why("/k/pods")), (None, None), "a disk serves other places");
    came_to("/k/pods/a", false);
    let reason = why("/k/pods/b").unwrap();
    assert!(reason.contains("/k (fuse.s)") && reason.contains("a helper of podstuck"), "{reason}");
    assert!(why("/proc/7/root/k").is_some(), "by whichever mount it is reached");
    let answered = why_not_in(&table, Path::new("/k"), Occasion::Answered);
    assert_eq!(answered, None, "a call has returned since");
    came_to("/k", true);
    assert_eq!(why("/k/pods/b"), None);
}

#[test]
fn an_open_file_on_a_hung_server_is_not_entered() {
    let process = tempfile::tempdir().unwrap();
    fs::create_dir(process.path().join("fdinfo")).unwrap();
    let write = |name: &str, text: &[u8]| fs::write(process.path().join(name), text).unwrap();
    write("fdinfo/2", b"pos:\t0\nflags:\t0100001\nmnt_id:\t2\n");
    write("mountinfo", b"1 0 0:3 / / rw - tmpfs a rw\n2 1 0:4194296 / /log rw - nfs4 s:/x rw\n");
    let why = || why_not_open(process.path(), 7, 2);
    assert_eq!(why(), None);
    let on = MountPoint { fs_type: "nfs4".into(), minor: 4_194_296, ..MountPoint::default() };
    hangs(4_194_997, &on);
    assert!(why().unwrap().contains("/log (nfs4)"));
    hangs_no_more(4_194_997);
}

#[test]
fn a_local_file_system_may_be_entered_while_a_write_to_it_waits() {
    let on = MountPoint { fs_type: "ext4".into(), minor: 4_194_290, ..MountPoint::default() };
    hangs(4_194_998, &on);
    assert!(!of(&HANGING).contains_key(&4_194_998));
}

#[test]
fn a_disk_shows_the_requests_it_has_begun() {
    let text = "     10  1  80  5  20  2  160  9  3  7  14  1  0  0  0  2  4\n";
    assert_eq!(Work::of(text), Some(Work { done: 33, open: 3 }));
    assert_eq!(Work::of("10 1 80 5 20 2 160 9 0 7 14"), Some(Work { done: 30, open: 0 }));
    assert_eq!((Work::of(""), Work::of("1 2 x")), (None, None));
}

#[test]
fn a_device_that_completes_requests_is_alive() {
    assert!(comes_on(|| true) && !comes_on(|| false));
}
