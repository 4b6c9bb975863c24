//! The selection of tests for each machine: those whose outcome depends on the kernel.
//!
//! All other tests (arguments, wording, exports, reads of `/proc` and cgroups) only run natively with `cargo xtask
//! test`, since an emulated machine is ten times as slow. Of the labs, those are selected whose causes only the
//! probes show.

use std::collections::BTreeSet;

/// Tests in the format of `init.sh`: `PROGRAM` or `PROGRAM:PART`, separated by commas. `PART` is part of the tests'
/// names.
#[derive(Clone, Copy)]
pub(super) struct Tests {
    /// With the first backend
    pub(super) first: &'static str,
    /// With every other backend
    pub(super) again: &'static str,
}

/// Tests that depend on the hooks: all further code is the same behind another entry point.
const BY_HOOK: &str = "cli:doctor,labs:busy::csi,labs:immutable_attribute,labs:crosses,\
                       paths:by_,paths:renamed,paths:through,paths:resolved,other_ways:32_bit,\
                       other_ways:io_uring,other_ways:moved,counts:two,counts:rm,times:start,\
                       holders:namespace,holders:lazily";

/// The tests of these that fail first if a hook differs: for the kernels between and for another backend, if there is
/// no time for more.
const FIRST_TO_FAIL: &str = "cli:doctor_finds,labs:crosses,paths:by_descriptor,paths:resolved::what,\
                             paths:renamed,other_ways:32_bit,other_ways:io_uring,counts:two";

/// On the oldest and on the newest kernel, with cgroup v2.
pub(super) const AT_THE_ENDS: Tests = Tests {
    first: "cli:doctor,cli:privileges,labs:busy::csi,labs:busy::stacked,labs:busy::nested,\
            labs:crosses,labs:attribute,labs:mass,labs:healthy,paths,other_ways,counts,times,\
            holders:namespace,holders:lazily,late:nfs::,late:apparmor::",
    again: BY_HOOK,
};

/// The same in brief.
pub(super) const AT_THE_ENDS_IN_BRIEF: Tests = Tests { first: BY_HOOK, again: FIRST_TO_FAIL };

/// On the same kernels, in separate machines: these tests wait for unresponsive objects and run short of resources.
pub(super) const FAULTS: Tests = Tests {
    first: "faults:clock,faults:suspended,faults:beside_many,faults:two_runs",
    again: "faults:from_the_first_call_on,faults:beside_many,faults:two_runs",
};
/// All fault tests: also the kernel's memory accounting of the tables, the death of the process that holds the
/// probes, and the lack of descriptors.
pub(super) const ALL_FAULTS: Tests = Tests { first: FAULTS_WHOLE, again: FAULTS_WHOLE };
const FAULTS_WHOLE: &str = "faults:clock,faults:suspended,faults:beside_many,\
                            faults:two_runs,faults:killed,faults:mebibytes,faults:descriptors";

/// On the same kernels: attacks of a tenant that suppress a pod's finding or attribute it to another pod, where the
/// probes decide.
pub(super) const ATTACKS: Tests =
    Tests { first: "attacks:look_alikes", again: "attacks:look_alikes" };
/// All attacks.
pub(super) const ALL_ATTACKS: Tests = Tests { first: "attacks", again: "attacks" };

/// On the kernels between: how each call is observed and counted, and each kind of path. The later processing is the
/// same code with the same input.
pub(super) const BETWEEN: Tests = Tests {
    first: "cli:doctor,labs:busy::csi,labs:crosses,paths,other_ways,counts,times:start,late:nfs::",
    again: BY_HOOK,
};

/// The same in brief.
pub(super) const BETWEEN_IN_BRIEF: Tests = Tests { first: FIRST_TO_FAIL, again: FIRST_TO_FAIL };

/// The caller, and the findings about it. cgroup v1 no longer changes, so the oldest and the newest kernel suffice.
pub(super) const WITH_CGROUP_V1: Tests = Tests {
    first: "labs:immutable_attribute,labs:busy::csi,labs:healthy,cli:unknown_pod",
    again: "labs:busy::csi",
};

/// The tests that work without BTF. The others would be skipped or need no kernel.
pub(super) const WITHOUT_BTF: Tests = Tests { first: "no_btf", again: "no_btf" };

/// The message about a kernel that lets no program read its memory.
pub(super) const LOCKED_DOWN: Tests = Tests { first: "cli:locked_down", again: "cli:locked_down" };

/// The decisions of an SELinux policy about hooks. Debian's policy refuses the first backend.
pub(super) const UNDER_SELINUX: Tests = Tests {
    first: "cli:selinux",
    again: "cli:selinux,cli:doctor,counts:two,paths:by_,labs:immutable_attribute,labs:busy::csi",
};

/// Real runtimes with the OCI runtimes of nearly all nodes, on cgroup v2 only. Without the storm, which takes minutes
/// on an emulated processor.
pub(super) const RUNTIMES: Tests = Tests {
    first: "runtimes:by_container::,runtimes:by_daemon::,runtimes:out_of_step,runtimes:podman,\
            runtimes:snapshots,runtimes:short_containers,runtimes:healthy_containers,runtimes:a_mount_in_a_docker,\
            runtimes:a_root_file,runtimes:attributes,runtimes:full_disk",
    again: "runtimes:podman",
};

/// Tests that depend on concurrent processors: contended slots, tables with two writers, and reads concurrent with
/// writes.
pub(super) const AT_ONCE: Tests = Tests {
    first: "counts,paths:by_,paths:renamed,paths:held_back,other_ways:moved",
    again: "counts,paths:by_,paths:renamed,other_ways:moved",
};

/// The memory of tables that are sized by the possible processors, and the counts in them. And AppArmor, which this
/// machine may not have.
pub(super) const MANY_POSSIBLE: Tests = Tests {
    first: "cli:doctor_finds,counts:two,late:apparmor::",
    again: "cli:doctor_finds,counts:two",
};

/// The test programs of all selections.
pub(super) fn programs() -> BTreeSet<&'static str> {
    all().into_iter().map(|(program, _)| program).collect()
}

/// Each program with each part of a name; `None` for all of its tests.
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
        MANY_POSSIBLE,
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
            "late",
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
