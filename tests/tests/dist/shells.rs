//! Completions, in the shells that there are.

use std::{fs, path::Path, process::Command};

use podstuck_tests::{requires, skip};

use super::made::{VERSION, architecture, done, has, made, tool, unpacked};

fn tarball() -> (tempfile::TempDir, String) {
    let name = format!("podstuck-{VERSION}-linux-{}", architecture());
    (unpacked(&format!("{name}.tar.gz")), name)
}

/// What bash offers for the last of these words, with the program in `PATH`. It has a mount namespace of its own, in
/// which this is done first.
fn offered(top: &Path, first: &str, words: &[&str]) -> Vec<String> {
    const SCRIPT: &str = r#"
        eval "$1"; shift
        source "$1"; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
        function=$(complete -p podstuck); function=${function##*-F }; function=${function%% *}
        "$function" podstuck "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", top.display());
    let mut bash = Command::new("unshare");
    bash.args(["--mount", "bash", "--norc", "-c", SCRIPT, "bash", first]);
    bash.arg(top.join("completions/podstuck.bash")).args(words).env("PATH", path);
    let said = done(&mut bash);
    said.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn bash_completes_commands_causes_labs_and_pods_of_this_node() {
    let root = if nix::unistd::geteuid().is_root() { Ok(()) } else { Err("not root") };
    requires!(made(), has("bash"), has("unshare"), root);
    let (folder, name) = tarball();
    let top = folder.path().join(name);
    assert_eq!(offered(&top, "", &["podstuck", "diag"]), ["diagnose"]);
    assert_eq!(offered(&top, "", &["podstuck", "explain", "mass-del"]), ["mass-deletion"]);
    let labs = offered(&top, "", &["podstuck", "lab", "csi-driver-lost"]);
    assert!(labs.contains(&"csi-driver-lost-publish-state-silent".into()), "{labs:?}");
    assert_eq!(offered(&top, "", &["podstuck", "watch", "--backend", "trac"]), ["tracepoint"]);
    let pods = "mount -t tmpfs none /var/log && mkdir -p /var/log/pods/shop_cart-0_12-34";
    let given = offered(&top, pods, &["podstuck", "diagnose", "--pod", "shop"]);
    assert_eq!(given, ["shop/cart-0"]);
    assert_eq!(offered(&top, pods, &["podstuck", "diagnose", "--pod-uid", ""]), ["12-34"]);
}

#[test]
fn zsh_and_fish_can_read_their_scripts() {
    requires!(made());
    let (folder, name) = tarball();
    let completions = folder.path().join(name).join("completions");
    let shells = [("zsh", "-n", "#compdef podstuck"), ("fish", "--no-execute", "complete ")];
    for (shell, check, part) in shells {
        let script = completions.join(format!("podstuck.{shell}"));
        let text = fs::read_to_string(&script).unwrap();
        assert!(text.contains(part), "{text}");
        match has(shell) {
            Ok(()) => drop(done(tool(shell).arg(check).arg(&script))),
            Err(missing) => skip(format!("no {missing}")),
        }
    }
}
