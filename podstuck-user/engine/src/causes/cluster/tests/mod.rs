//! Tests of each cause: what proves it, and its look-alikes.

mod daemon_sets;
mod finalizers;
mod generated;
mod kubelets;
mod namespaces;
mod pods;
mod resource_claims;
mod volumes;
mod world;
