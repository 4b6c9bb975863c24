//! What a user types first: a watch of the whole node, and a lab beside it that nothing holds back. Where the lab has its
//! pod is known by its kubelet's command line alone.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use podstuck_tests::{lab_as_typed, requires, root_and_btf, skip, watch};

/// By a call's error, by a holder, and by what is mounted.
const CASES: [&str; 3] = ["immutable-attribute", "volume-held-by-host-process", "stacked-mounts"];

#[test]
fn labs_are_found_as_a_user_starts_them() {
    requires!(root_and_btf());
    for case in CASES {
        let mut watching = watch(&[]);
        let Some((lab, ready)) = lab_as_typed(case, &[]) else {
            skip(format!("{case}: this machine lacks what it needs"));
            continue;
        };
        watching.wait_for(case, |line| {
            line["type"] == "finding"
                && line["id"] == case
                && line["pod"]["uid"] == ready["pod_uid"]
        });
        lab.stop();
        watching.stop();
    }
}
