//! The node that a test runs on.

use std::{env, path::PathBuf};

use podstuck_test_node::{Node, Runtime};
use podstuck_tests::podstuck;

/// Ends the node, unless it was up before.
pub struct Borrowed {
    node: Option<Node>,
    is_ours: bool,
}

impl Borrowed {
    /// With a runtime; one that is up is taken where it is the usual one and nothing is on it.
    pub fn with(runtime: Runtime) -> Self {
        let running = Node::running().unwrap();
        let is_ours = running.is_none();
        let free = running.and_then(|node| {
            let pods = node.kubectl(&["get", "pods", "-o", "name"]).unwrap();
            if pods.is_empty() && runtime == Runtime::Containerd {
                return Some(node);
            }
            // What holds the pods of an earlier run may be gone with the process that could undo it.
            node.down().unwrap();
            None
        });
        let up = || {
            let [driver, fuse] = ["podstuck-csi-driver", "podstuck-fuse"].map(beside_us);
            Node::up(runtime, &[&podstuck(), &driver, &fuse]).unwrap()
        };
        Self { node: Some(free.unwrap_or_else(up)), is_ours }
    }

    /// The node.
    pub fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(node) = self.node.take().filter(|_| self.is_ours)
            && let Err(error) = node.down()
        {
            eprintln!("ending the node: {error:#}");
        }
    }
}

/// Where cargo puts the CSI driver and its FUSE server: beside the tests.
pub fn beside_us(program: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join(program)
}
