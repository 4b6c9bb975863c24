use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, symlink},
        process::CommandExt,
    },
    process::{Command, Stdio},
};

use super::*;
use crate::model::{evidence::Certainty, mountinfo};

const THERE: View = View { process: Some(77), seen_by: None };

fn printed(step: Step) -> (String, Option<String>) {
    let remedy = step.remedy("low").given(Certainty::Firm, false);
    (remedy.words().to_owned(), remedy.verify)
}

/// Runs a line in each shell that root may use.
fn run(line: &str) -> bool {
    let run = |shell: &str| Command::new(shell).args(["-c", line]).stderr(Stdio::null()).status();
    let [bash, sh] = ["bash", "sh"].map(|shell| run(shell).unwrap().success());
    assert_eq!(bash, sh, "{line}");
    bash
}

fn typed(step: &Step) -> bool {
    run(&step.line().unwrap().text)
}

fn id(path: &Path) -> FileId {
    let stat = fs::symlink_metadata(path).unwrap();
    FileId { device: stat.dev(), inode: stat.ino() }
}

#[test]
fn a_process_is_named_by_its_start_too() {
    let gone = Some("sleep 1; ! grep -qs '^State:.[^XZ]' /proc/7/status".to_owned());
    let guarded =
        "[ \"$(sed \"s/.*) //\" /proc/7/stat | cut -d\" \" -f20)\" = 99 ] && kill -9 7".to_owned();
    assert_eq!(printed(kill("kill -9", Process::new(7, Some(99), None))), (guarded, gone));
    assert_eq!(printed(kill("kill -CONT", Process::new(7, Some(99), None))).1, None);
    let of_thread = printed(if_same(
        "kill",
        Process { tid: 8, ..Process::new(7, Some(99), None) },
        "kill -9 7".into(),
    ))
    .0;
    assert!(of_thread.contains("/proc/7/task/8/stat "), "{of_thread}");
}

#[test]
fn a_process_that_has_the_number_of_another_is_left_alone() {
    // Its name imitates the rest of the line.
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let program = directory.join("x) S 1 1 1");
    // Not a copy: a process started by another test may hold it open for writing for a moment (ETXTBSY).
    symlink("/bin/sleep", &program).unwrap();
    let mut child = Command::new(&program).arg("60").spawn().unwrap();
    let pid = child.id();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let started: u64 =
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    assert!(!typed(&kill("kill -0", Process::new(pid, Some(started + 1), None))));
    assert!(typed(&kill("kill -0", Process::new(pid, Some(started), None))));
    assert!(typed(&if_same("try", Process::new(pid, Some(started), None), "true".into())));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!typed(&kill("kill -0", Process::new(pid, Some(started), None))));
}

#[test]
fn what_cannot_be_compared_is_not_acted_on() {
    let (path, id) = (Path::new("/k/v"), None);
    for step in [
        kill("kill", Process::new(7, None, None)),
        View::OURS.on_mount("umount", path, id),
        THERE.on_mount("mount -o remount,rw", path, id),
        THERE.on_file("try", path, None, |it| format!("chattr -i {it}")),
        THERE.on_mounted("try", path, id, |it| format!("fsfreeze --unfreeze {it}")),
        View::OURS.on_mount("umount", path, Some(9)).then(&View::OURS.on_file(
            "try",
            path,
            None,
            |it| format!("rm {it}"),
        )),
    ] {
        let remedy = step.remedy("low");
        let live = remedy.clone().given(Certainty::Firm, false);
        assert!(live.command.is_none() && live.advice.is_some(), "{live:?}");
        assert!(remedy.given(Certainty::Firm, true).command.is_some());
    }
}

#[test]
fn nothing_is_forced_in_doubt_or_on_the_unnamed() {
    let path = Path::new("/k/v");
    let force = |others: Option<Vec<String>>| {
        View::OURS.on_mount("umount -l", path, Some(9)).forced(others).remedy("high")
    };
    let named = force(Some(vec!["pod u".into()])).given(Certainty::Firm, false);
    assert!(named.command.is_some() && named.affects == ["pod u"]);
    for doubtful in [
        force(Some(Vec::new())).given(Certainty::Likely, false),
        force(Some(Vec::new())).given(Certainty::Possible, true),
        force(None).given(Certainty::Firm, false),
    ] {
        let advice = doubtful.advice.unwrap();
        assert!(doubtful.command.is_none() && doubtful.verify.is_none());
        assert!(
            advice.starts_with("`umount -l` of /k/v: no command is given, because"),
            "{advice}"
        );
    }
}

#[test]
fn without_xargs_an_object_is_named_by_its_numbers() {
    let file = Some(FileId { device: 5, inode: 6 });
    let remedy =
        |path| View::OURS.on_file("try", path, file, |it| format!("rm {it}")).remedy("low");
    let given = remedy(Path::new("/k/a'b")).without_xargs();
    let advice = given.advice.unwrap();
    assert!(given.command.is_none(), "{:?}", given.command);
    assert!(advice.contains("/k/a'b is still inode 6 of device 5"), "{advice}");
    assert!(advice.contains("no xargs and sh"), "{advice}");
    assert!(remedy(Path::new("/k/a b")).without_xargs().command.is_some(), "a word does");
    // A line that a shell would truncate is not printed.
    let long = format!("/k/{}", "n'".repeat(250));
    let advice = remedy(Path::new(&long)).advice.unwrap();
    assert!(advice.contains("inode 6 of device 5") && advice.contains("longer"), "{advice}");
}

#[test]
fn the_program_is_always_the_nodes() {
    let file = Some(FileId { device: 5, inode: 6 });
    let (plain, odd) = (Path::new("/k/v"), Path::new("/k/a b"));
    let chattr = |view: View, path| {
        printed(view.on_file("try", path, file, |it| format!("chattr -i {it}"))).0
    };
    let is_same = r#"&& [ "$(stat -c %d:%i ./v)" = 5:6 ] && chattr -i ./v'"#;
    assert_eq!(chattr(View::OURS, plain), format!("sh -c 'cd /k {is_same}"));
    assert_eq!(chattr(THERE, plain), format!("sh -c 'cd /proc/77/root/k {is_same}"));
    assert!(chattr(THERE, odd).ends_with(r#"chattr -i "$1"' sh './a b'"#));
    let du = |view: View| printed(view.look("try", plain, |it| format!("du {it}"))).0;
    assert_eq!(du(View::OURS), "du /k/v");
    assert!(du(THERE).starts_with("sh -c 'cd /proc/77/root/k/v && grep -q "));
    assert_eq!(THERE.table(), "/proc/77/mountinfo");
    let thaw = THERE.on_mounted("try", plain, Some(9), |it| format!("fsfreeze --unfreeze {it}"));
    assert_eq!(
        printed(thaw).0,
        "sh -c 'cd /proc/77/root/k/v && grep -q \"^mnt_id:.9$\" /proc/self/fdinfo/0 <. && fsfreeze --unfreeze .'"
    );
}

#[test]
fn a_mount_is_named_by_its_id_and_its_place() {
    let (line, verify) = printed(THERE.on_mount("umount", Path::new("/k"), Some(9)));
    let (is_there, act) = line.split_once(" && ").unwrap();
    assert_eq!(is_there, "cut -d\" \" -f1,5 /proc/77/mountinfo | grep -qxF '9 /k'");
    assert_eq!(act, "umount --internal-only --namespace 77 /k");
    assert_eq!(verify.unwrap(), format!("! {is_there}"));
    let remount = View::OURS.on_mount("mount -o remount,rw", Path::new("/k"), Some(9));
    assert_eq!(printed(remount).1, None);
}

#[test]
fn a_mount_that_was_moved_or_whose_id_was_given_again_is_left_alone() {
    let table = fs::read("/proc/self/mountinfo").unwrap();
    let mounts = mountinfo::parse(&table);
    let mount = mounts.iter().find(|mount| mount.point == Path::new("/proc")).unwrap();
    let is_there =
        |id, point: &str| typed(&Step::new("try", View::OURS.is_mounted(id, Path::new(point))));
    assert!(is_there(mount.id, "/proc"));
    assert!(!is_there(mount.id, "/pro"));
    assert!(!is_there(mount.id, "/proc/sys"));
    assert!(!is_there(mount.id + 100_000, "/proc"));
}

/// With all characters that a name may contain: all but a null byte and a slash.
#[test]
fn a_hostile_mount_point_is_found_by_its_own_line() {
    let name: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (parts, rest) = name.as_chunks::<32>();
    let parts = parts.iter().map(|part| &part[..]).chain([rest]);
    for bytes in parts.chain([&b".*"[..], b"' -o '", b"a b\\040c\n9 /proc", b"-e"]) {
        let point = Path::new("/v").join(OsStr::from_bytes(bytes));
        let line = [b"9 1 0:5 / ", &escape(&point)[..], b" rw - tmpfs t rw\n"].concat();
        assert_eq!(mountinfo::parse(&line)[0].point, point);
        fs::write(directory.join("table"), &line).unwrap();
        let table = directory.join("table");
        let is_there = |id, point: &Path| {
            let step = Step::new("try", View::OURS.is_mounted(id, point));
            let line = step.line().unwrap().text;
            let line = line.replace("/proc/self/mountinfo", table.to_str().unwrap());
            Command::new("bash").args(["-c", &line]).status().unwrap().success()
        };
        assert!(is_there(9, &point), "{}", safe_path(&point));
        assert!(!is_there(8, &point) && !is_there(9, Path::new("/v/x")));
    }
}

/// A container exchanges a directory on the path for a link to the node's own.
#[test]
fn a_link_on_the_way_leads_no_command_to_another_file() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    fs::create_dir_all(top.join("volume/d")).unwrap();
    fs::create_dir_all(top.join("host")).unwrap();
    for file in ["volume/d/f", "host/f"] {
        fs::write(top.join(file), "").unwrap();
    }
    let path = top.join("volume/d/f");
    let id = Some(id(&path));
    let command =
        View::OURS.on_file("try", &path, id, |it| format!("test -f {it}")).line().unwrap().text;
    assert!(run(&command));
    fs::rename(top.join("volume/d"), top.join("volume/e")).unwrap();
    assert!(!run(&command));
    symlink(top.join("host"), top.join("volume/d")).unwrap();
    assert!(!run(&command), "{command}");
    // The object itself is a link.
    fs::remove_file(top.join("volume/d")).unwrap();
    fs::create_dir(top.join("volume/d")).unwrap();
    symlink(top.join("host/f"), &path).unwrap();
    assert!(!run(&command));
}

/// With shell syntax, options, bytes that are not UTF-8, and line ends.
#[test]
fn a_file_with_a_hostile_name_is_the_one_that_is_met() {
    let top = tempfile::tempdir().unwrap();
    let long = [b'n'; 255];
    for name in [
        &b"$(touch pwned)"[..],
        b"`touch pwned`",
        b"-rf",
        b"'; touch pwned; '",
        b"a\nb",
        b"\xff\"\x1b[2J",
        &long,
    ] {
        let above = top.path().join(OsStr::from_bytes(name));
        fs::create_dir(&above).unwrap();
        let path = above.join(OsStr::from_bytes(name));
        fs::write(&path, "").unwrap();
        let step = View::OURS.on_file("try", &path, Some(id(&path)), |it| format!("rm {it}"));
        let line = step.line().unwrap().text;
        assert!(line.is_ascii() && !line.contains(char::is_control), "{line}");
        let ended =
            Command::new("bash").current_dir(top.path()).args(["-c", &line]).status().unwrap();
        assert!(ended.success() && !path.exists(), "{line}");
        fs::remove_dir(above).unwrap();
    }
    assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0, "nothing else was made");
}

/// A name that leads upwards is another pod's.
#[test]
fn a_path_that_leads_upwards_is_in_no_command() {
    let up = Path::new("/k/pods/a/../b/f");
    for step in [
        View::OURS.on_mount("umount", up, Some(9)),
        THERE.on_file("try", up, Some(FileId { device: 5, inode: 6 }), |it| format!("rm {it}")),
        THERE.on_mounted("try", up, Some(9), |it| format!("fsfreeze --unfreeze {it}")),
    ] {
        assert!(step.remedy("low").given(Certainty::Firm, false).command.is_none());
    }
}

/// The same in another mount namespace, where an absolute link leads to the node's root by `/proc/PID/root`.
#[test]
fn an_absolute_link_leads_no_look_out_of_a_namespace() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    for directory in ["root/real", "host"] {
        fs::create_dir_all(top.join(directory)).unwrap();
    }
    symlink(top.join("host"), top.join("root/link")).unwrap();
    let (root, ready) = (top.join("root"), top.join("ready"));
    let script = "mount -t tmpfs tmpfs \"$1\" && mkdir \"$1/real\" && ln -s \"$2\" \"$1/link\" && touch \"$3\" && exec sleep 60";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, "sh"]);
    let mut other =
        shell.arg(&root).arg(top.join("host")).arg(&ready).process_group(0).spawn().unwrap();
    while !ready.exists() {
        if other.try_wait().unwrap().is_some() {
            println!("skipped: no mount namespace can be made here");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let there = View { process: Some(other.id()), seen_by: None };
    let looks =
        |name: &str| typed(&there.look("try", &root.join(name), |it| format!("test -d {it}")));
    assert!(looks("real"));
    assert!(!looks("link"), "it leads to the host's own directory");
    let table = fs::read(format!("/proc/{}/mountinfo", other.id())).unwrap();
    let mounts = mountinfo::parse(&table);
    let mount = mounts.iter().find(|mount| mount.point == root).unwrap();
    let acts = |name: &str, id| {
        typed(&there.on_mounted("try", &root.join(name), Some(id), |it| format!("test -d {it}")))
    };
    assert!(acts("", mount.id) && acts("real", mount.id));
    assert!(!acts("link", mount.id) && !acts("", mount.id + 1));
    other.kill().unwrap();
    other.wait().unwrap();
}
