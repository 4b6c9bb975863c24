//! Everything by which podstuck gets onto a node, as `cargo xtask dist` makes it: each artefact is used as its user
//! would. They are made of the program that the other tests use, so that none is built for this.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "a test stops at the first surprise"
)]

#[path = "common/as_by_systemd.rs"]
mod as_by_systemd;
#[path = "dist/binstall.rs"]
mod binstall;
#[path = "dist/data.rs"]
mod data;
#[path = "dist/holder.rs"]
mod holder;
#[path = "dist/image.rs"]
mod image;
#[path = "dist/made.rs"]
mod made;
#[path = "dist/package.rs"]
mod package;
#[path = "dist/pages.rs"]
mod pages;
#[path = "dist/plugin.rs"]
mod plugin;
#[path = "dist/provenance.rs"]
mod provenance;
#[path = "dist/shells.rs"]
mod shells;
#[path = "dist/tarball.rs"]
mod tarball;
