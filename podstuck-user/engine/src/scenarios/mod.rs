//! The findings of each kind of incident, from the first call to the end, word for word: each change of the output
//! shows up in the snapshots.

mod logs;
mod mounts;
mod neighbour;
mod play;
mod proof;
mod refusals;
mod removals;
mod runtimes;
mod sandbox;
mod states;

use play::Play;

use crate::model::{finding::Finding, path::safe};

/// The lines of a run, one per finding.
fn lines(plays: Vec<(&str, Play)>) -> String {
    let of_play = |(name, play): (&str, Play)| {
        assert!(!play.lines.is_empty(), "{name}: no finding");
        format!("# {name}\n{}\n", play.lines.join("\n"))
    };
    plays.into_iter().map(of_play).collect()
}

macro_rules! hold {
    ($($scenarios:path),* $(,)?) => {$(
        let name = stringify!($scenarios).replace("::", "-");
        let answer = lines($scenarios());
        assert_eq!(podstuck_testing::own_words(&answer), [""; 0], "{name}");
        insta::assert_snapshot!(name, answer);
    )*};
}

#[test]
fn each_incident_keeps_its_findings() {
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        hold!(
            removals::busy,
            removals::crossed_and_dead_mounts,
            refusals::refused_and_failed,
            removals::not_empty,
            removals::orphan,
            removals::bulk_delete,
            states::not_attempted,
            states::arrived_late,
            states::unkillable,
            states::pinned_device,
            states::hung_call,
            states::disk_full,
            states::pod_record,
            states::kubelet_state,
            logs::runtime_says,
            logs::told_to_go,
            logs::volume_command,
            sandbox::sandbox_busy,
            sandbox::image_volume_busy,
            sandbox::device_busy,
            mounts::linked_root,
            mounts::mount_storm,
            logs::devices,
            runtimes::runtime_state,
            runtimes::docker,
        );
    });
}

/// Each command has a sentence that fits one or two lines and names the process that it is about.
pub(super) fn check_sentences(finding: &Finding) {
    for remedy in &finding.remedies {
        let Some(command) = &remedy.command else {
            assert_eq!(remedy.does, None, "advice is a sentence itself: {remedy:?}");
            continue;
        };
        let does = remedy.does.as_deref().unwrap_or_default();
        let length = does.chars().count();
        assert!((1..=100).contains(&length), "{length}: {remedy:?}");
        assert_eq!(safe(does.as_bytes()), does);
        let words = command.split([' ', '/', '"', ';', ')']).collect::<Vec<_>>();
        let pids = words
            .windows(2)
            .filter(|two| ["proc", "--namespace", "--pid", "kill"].contains(&two[0]));
        for pid in pids.filter_map(|two| two[1].parse::<u32>().ok()) {
            let named = [format!("pid {pid}"), format!("/proc/{pid}/")];
            assert!(named.iter().any(|it| does.contains(it)), "{pid}: {remedy:?}");
        }
    }
}
