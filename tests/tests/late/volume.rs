//! What a volume's state shows: an object that is protected, a mount, a holder.

use std::{fs, process::Command};

use podstuck_tests::{Ending, requires, root_and_btf, summary};
use serde_json::Value;

use super::{Node, answer, chattr};

#[test]
fn an_immutable_file_is_reported_before_the_next_attempt() {
    requires!(root_and_btf());
    let node = Node::new(1, "unlinkat {}/kept: operation not permitted");
    let file = node.volume().join("kept");
    chattr("+i", &file);
    let (lines, status) = node.diagnose("100s");
    chattr("-i", &file);

    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "immutable-attribute", "{answer:#}");
    assert_eq!((&cause["certainty"], &cause["count"]), (&"firm".into(), &3.into()), "{cause:#}");
    assert_eq!(cause["pod"]["name"], node.name(), "{cause:#}");
    let of_log = |fact: &Value| fact["source"].as_str().unwrap().starts_with("log of kubelet");
    assert!(cause["evidence"].as_array().unwrap().iter().any(of_log), "{cause:#}");
    assert_eq!(answer["said"][0]["times"], 3, "{answer:#}");
    assert_eq!(summary(&lines)["calls"], 0, "nobody has tried: {lines:#?}");
    assert_eq!(status, Some(1));
}

#[test]
fn what_was_cured_meanwhile_is_quoted_and_not_blamed() {
    requires!(root_and_btf());
    let node = Node::new(2, "unlinkat {}/kept: operation not permitted");
    let (lines, status) = node.diagnose("4s");
    let answer = answer(&lines);
    assert_eq!(answer["causes"], serde_json::json!([]), "{answer:#}");
    let text = answer["said"][0]["text"].as_str().unwrap();
    assert!(text.ends_with("kept: operation not permitted"), "{answer:#}");
    assert_eq!(status, Some(5), "still there, and no cause");
}

#[test]
fn a_mount_in_an_empty_dir_is_reported_before_the_next_attempt() {
    requires!(root_and_btf());
    let node = Node::new(3, "unlinkat {}/sub: device or resource busy");
    let point = node.volume().join("sub");
    fs::create_dir(&point).unwrap();
    let mount = |args: &[&str]| Command::new("mount").args(args).arg(&point).status().unwrap();
    assert!(mount(&["-t", "tmpfs", "none"]).success());
    let (lines, _) = node.diagnose("100s");
    assert!(Command::new("umount").arg(&point).status().unwrap().success());
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "emptydir-bidirectional-submount", "{answer:#}");
    assert_eq!((&cause["certainty"], &cause["blocks_deletion"]), (&"firm".into(), &true.into()));
}

#[test]
fn a_read_only_mount_over_a_volume_is_reported_before_the_next_attempt() {
    requires!(root_and_btf());
    let node = Node::new(6, "unlinkat {}/kept: read-only file system");
    let volume = node.volume();
    let mount = |args: &[&str]| {
        let status = Command::new("mount").args(args).arg(&volume).status().unwrap();
        assert!(status.success(), "{args:?}");
    };
    mount(&["--bind", node.directory.path().to_str().unwrap()]);
    mount(&["-o", "remount,bind,ro"]);
    let (lines, _) = node.diagnose("100s");
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "mount-over-volume", "{answer:#}");
    assert_eq!((&cause["certainty"], &cause["blocks_deletion"]), (&"firm".into(), &true.into()));
}

#[test]
fn the_holder_of_a_mount_is_reported_before_the_next_attempt() {
    requires!(root_and_btf());
    let complaint = "unmount failed: exit status 32\nUnmounting arguments: {}\nOutput: umount: {}: target \
        is busy.\n";
    let node = Node::new(4, complaint);
    let volume = node.volume();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&volume).status().unwrap();
    assert!(mounted.success());
    let holder = Ending::start(Command::new("sleep").arg("600").current_dir(&volume));
    let (lines, _) = node.diagnose("100s");
    let names = format!("pid {}", holder.id());
    drop(holder);
    assert!(Command::new("umount").arg(&volume).status().unwrap().success());
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "volume-held-by-host-process", "{answer:#}");
    assert!(cause["evidence"].to_string().contains(&names), "{names}: {cause:#}");
}
