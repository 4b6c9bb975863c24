//! Tests of each cause: what proves it, and its look-alikes.

mod finalizers;
mod generated;
mod kubelets;
mod namespaces;
mod pods;
mod volumes;
mod world;
