//! Which tests run in which machines: those whose outcome the kernel decides.
//!
//! What it does not decide (arguments, wording, exports, what is read from `/proc` and cgroups) is
//! tried natively by `cargo xtask test` and nowhere else, since an emulated machine is ten times as
//! slow. Of the labs, those are here whose causes the probes alone show.

use std::collections::BTreeSet;

/// Tests as `init.sh` takes them: `PROGRAM` or `PROGRAM:PART`, with commas between. `PART` is part of
/// the names of the tests meant.
#[derive(Clone, Copy)]
pub(super) struct Tests {
    /// With the first backend
    pub(super) first: &'static str,
    /// With every other one
    pub(super) again: &'static str,
}

/// What depends on where the probes hang: the rest is the same code behind another entry.
const BY_HOOK: &str = "cli:doctor,labs:busy::csi,labs:immutable_attribute,labs:crosses,\
                       paths:by_,paths:renamed,paths:through,paths:resolved,other_ways:32_bit,\
                       other_ways:io_uring,other_ways:moved,counts:two,counts:rm,times:start,\
                       holders:namespace";

/// Of that, what fails first where a hook is not as expected: enough for kernels between, and for another backend, where
/// there is no time for more.
const FIRST_TO_FAIL: &str = "cli:doctor_finds,labs:crosses,paths:by_descriptor,paths:resolved::what,\
                             paths:renamed,other_ways:32_bit,other_ways:io_uring,counts:two";

/// On the oldest and on the newest kernel, with cgroup v2.
pub(super) const AT_THE_ENDS: Tests = Tests {
    first: "cli:doctor,cli:privileges,labs:busy::csi,labs:busy::stacked,labs:busy::nested,\
            labs:crosses,labs:attribute,labs:mass,labs:healthy,paths,other_ways,counts,times,\
            holders:namespace",
    again: BY_HOOK,
};

/// Where there is no time for more.
pub(super) const AT_THE_ENDS_IN_BRIEF: Tests = Tests { first: BY_HOOK, again: FIRST_TO_FAIL };

/// There, too, in machines of their own: they wait for what does not answer, and are short of what they need.
pub(super) const FAULTS: Tests = Tests {
    first: "faults:clock,faults:suspended,faults:beside_many,faults:two_runs",
    again: "faults:from_the_first_call_on,faults:beside_many,faults:two_runs",
};
/// All of that, where there is time: what the kernel counts as memory of the tables, what goes on when who has the
/// probes is killed, and what cannot be read without descriptors.
pub(super) const ALL_FAULTS: Tests = Tests { first: FAULTS_WHOLE, again: FAULTS_WHOLE };
const FAULTS_WHOLE: &str = "faults:clock,faults:suspended,faults:beside_many,\
                            faults:two_runs,faults:killed,faults:mebibytes,faults:descriptors";

/// There, too: what a tenant does so that a pod's finding is not made, goes, or names another pod. Here where
/// the probes decide it.
pub(super) const ATTACKS: Tests =
    Tests { first: "attacks:look_alikes", again: "attacks:look_alikes" };
/// All of that, where there is time.
pub(super) const ALL_ATTACKS: Tests = Tests { first: "attacks", again: "attacks" };

/// On those between: how each call is seen and counted, and each way to a path. What is made of a
/// call is the same code with the same input.
pub(super) const BETWEEN: Tests = Tests {
    first: "cli:doctor,labs:busy::csi,labs:crosses,paths,other_ways,counts,times:start",
    again: BY_HOOK,
};

/// The same, where there is no time for more.
pub(super) const BETWEEN_IN_BRIEF: Tests = Tests { first: FIRST_TO_FAIL, again: FIRST_TO_FAIL };

/// Who calls, and what is said about it. That interface of the kernel no longer changes, so that the
/// oldest and the newest kernel are enough.
pub(super) const WITH_CGROUP_V1: Tests = Tests {
    first: "labs:immutable_attribute,labs:busy::csi,labs:healthy,cli:unknown_pod",
    again: "labs:busy::csi",
};

/// What is left without the kernel's types. The others would say that they are skipped, or do not need
/// a kernel at all.
pub(super) const WITHOUT_BTF: Tests = Tests { first: "no_btf", again: "no_btf" };

/// What a kernel says that lets no program read its memory.
pub(super) const LOCKED_DOWN: Tests = Tests { first: "cli:locked_down", again: "cli:locked_down" };

/// What a policy of SELinux decides: which hooks may be had. Debian's refuses the first backend.
pub(super) const UNDER_SELINUX: Tests = Tests {
    first: "cli:selinux",
    again: "cli:selinux,cli:doctor,counts:two,paths:by_,labs:immutable_attribute,labs:busy::csi",
};

/// Real runtimes, with what starts and removes nearly all containers elsewhere: cgroup v2 alone. But for the storm,
/// which takes minutes on an emulated processor.
pub(super) const RUNTIMES: Tests = Tests {
    first: "runtimes:by_container::,runtimes:by_daemon::,runtimes:out_of_step,runtimes:podman,\
            runtimes:snapshots,runtimes:short_containers,runtimes:healthy_containers,runtimes:a_mount_in_a_docker,\
            runtimes:a_root_file,runtimes:attributes,runtimes:full_disk",
    again: "runtimes:podman",
};

/// What depends on two processors that run at once: slots that two want, tables that two write, answers that
/// one takes while the other writes them.
pub(super) const AT_ONCE: Tests = Tests {
    first: "counts,paths:by_,paths:renamed,paths:held_back,other_ways:moved",
    again: "counts,paths:by_,paths:renamed,other_ways:moved",
};

/// The test programs that these are in.
pub(super) fn programs() -> BTreeSet<&'static str> {
    all().into_iter().map(|(program, _)| program).collect()
}

/// Each program with each part of a name; no part means all of its tests.
pub(super) fn all() -> BTreeSet<(&'static str, Option<&'static str>)> {
    [
        AT_THE_ENDS,
        AT_THE_ENDS_IN_BRIEF,
        FAULTS,
        ALL_FAULTS,
        ALL_ATTACKS,
        ATTACKS,
        BETWEEN,
        BETWEEN_IN_BRIEF,
        WITH_CGROUP_V1,
        WITHOUT_BTF,
        LOCKED_DOWN,
        UNDER_SELINUX,
        AT_ONCE,
        RUNTIMES,
    ]
    .into_iter()
    .flat_map(|tests| [tests.first, tests.again])
    .flat_map(|tests| tests.split(','))
    .map(|test| test.split_once(':').map_or((test, None), |(program, part)| (program, Some(part))))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_once() {
        let expected = [
            "attacks",
            "cli",
            "counts",
            "faults",
            "holders",
            "labs",
            "no_btf",
            "other_ways",
            "paths",
            "runtimes",
            "times",
        ];
        assert_eq!(programs().into_iter().collect::<Vec<_>>(), expected);
        assert!(all().contains(&("paths", None)) && all().contains(&("counts", Some("rm"))));
    }
}
