//! Controllers of generated clusters: one is reported as gone only if all that proves it was read.

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use super::world::{NOW, World, deleted, ids, lease, living};
use crate::model::cluster::Kind;

const FINALIZER: &str = "widgets.example.com/protect";
/// Names of Leases; the first two have the finalizer's domain.
const LEASES: [&str; 4] = [
    "0123abcd.widgets.example.com",
    "89abcdef.widgets.example.com",
    "0123abcd.example.com",
    "widgets",
];
/// Holders; the first two are pods of workloads.
const HOLDERS: [&str; 4] =
    ["widget-manager-6d9f8b7c5-x2x7z_5b1e", "widget-manager-0_5b1e", "laptop", ""];

#[derive(Clone, Debug)]
struct Held {
    lease: usize,
    holder: usize,
    /// Seconds since the Lease was renewed.
    age: i64,
}

#[derive(Clone, Debug)]
struct Cluster {
    held: Vec<Held>,
    /// Whether each of the two holders' pods exists.
    pods: [bool; 2],
    /// Available replicas of the Deployment and the StatefulSet; `None` if it does not exist.
    workloads: [Option<u32>; 2],
    forbidden: Option<usize>,
}

const RIGHTS: [Kind; 4] = [Kind::LEASE, Kind::POD, Kind::DEPLOYMENT, Kind::STATEFUL_SET];

fn clusters() -> impl Strategy<Value = Cluster> {
    let age = select(vec![0, 30, 59, 61, 3600, 900_000]);
    let held = (0..LEASES.len(), 0..HOLDERS.len(), age);
    let held = held.prop_map(|(lease, holder, age)| Held { lease, holder, age });
    let workload = || prop_oneof![Just(None), Just(Some(0)), Just(Some(1))];
    let forbidden = prop_oneof![4 => Just(None), 1 => (0..RIGHTS.len()).prop_map(Some)];
    let all = (vec(held, 0..3), any::<[bool; 2]>(), [workload(), workload()], forbidden);
    all.prop_map(|(held, pods, workloads, forbidden)| Cluster { held, pods, workloads, forbidden })
}

impl Cluster {
    fn world(&self) -> World {
        let kept = json!({"metadata": deleted(None, "pv-1", json!({"finalizers": [FINALIZER]}))});
        let mut world = World::default().with(Kind::VOLUME, kept);
        let now: jiff::Timestamp = NOW.parse().unwrap();
        for (number, held) in self.held.iter().enumerate() {
            let renewed = now - jiff::SignedDuration::from_secs(held.age);
            // A name is unique in a namespace.
            let namespace = format!("ns-{number}");
            let name = LEASES[held.lease];
            world = world.with(
                Kind::LEASE,
                lease(&namespace, name, HOLDERS[held.holder], &renewed.to_string()),
            );
            for (at, exists) in self.pods.iter().enumerate().filter(|(_, exists)| **exists) {
                let name = HOLDERS[at].split('_').next().unwrap();
                assert!(*exists);
                world = world.with(Kind::POD, json!({"metadata": living(Some(&namespace), name)}));
            }
            for (kind, available) in
                [Kind::DEPLOYMENT, Kind::STATEFUL_SET].into_iter().zip(self.workloads)
            {
                let Some(available) = available else { continue };
                let status: Value =
                    json!({"availableReplicas": available, "readyReplicas": available});
                let object = json!({"metadata": living(Some(&namespace), "widget-manager"), "status": status});
                world = world.with(kind, object);
            }
        }
        self.forbidden.into_iter().fold(world, |world, at| world.without_right(RIGHTS[at].clone()))
    }

    /// Whether this cluster proves that the controller is gone.
    fn is_gone(&self) -> bool {
        let may_read = |at: usize| self.forbidden != Some(at);
        let is_gone = |held: &Held| {
            held.age > 60
                && held.holder < 2
                && may_read(1)
                && !self.pods[held.holder]
                && may_read(2 + held.holder)
                && self.workloads[held.holder].unwrap_or(0) == 0
        };
        let mut own = self.held.iter().filter(|held| held.lease < 2).peekable();
        may_read(0) && own.peek().is_some() && own.all(is_gone)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_controller_is_gone_where_all_of_it_is_proven(cluster in clusters()) {
        let key = crate::model::cluster::Key::global(Kind::VOLUME, "pv-1");
        let found = ids(&cluster.world().case(&key));
        let expected = if cluster.is_gone() { "finalizer-controller-gone" } else { "object-finalizer" };
        prop_assert_eq!(found, vec![expected], "{:?}", cluster);
    }
}
