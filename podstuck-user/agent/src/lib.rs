//! The agent of one node. It runs a watch (`watch`), keeps the stuck pods (`board`), writes Events (`events`) and
//! serves metrics and health (`serve`). Data flows from the watch to the API server and to scrapers; nothing flows
//! back.

mod board;
pub mod cli;
mod events;
mod health;
mod line;
mod log;
mod memory;
mod metrics;
mod posted;
mod privilege;
mod reporter;
pub mod run;
mod serve;
mod stuck;
pub mod uninstall;
mod watch;
