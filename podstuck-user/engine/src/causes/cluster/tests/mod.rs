//! Each cause by what proves it, and what looks like it.

mod finalizers;
mod generated;
mod kubelets;
mod namespaces;
mod pods;
mod volumes;
mod world;
