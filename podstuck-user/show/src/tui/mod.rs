//! The screen of `watch`, `diagnose` and `replay` on a terminal: the same findings, calls and counts as in text and
//! JSON, as they stand.
//!
//! The data ([`state`]), the user's choices ([`choice`], by [`keys`]) and the rendering of both ([`view`]) are pure.
//! [`terminal`] alone touches the terminal, from the thread of [`screen`]: a terminal that accepts no output delays
//! the screen, and no event.
//!
//! Others chose the names. Every text goes through [`podstuck_model::path::safe`] before it is drawn.

mod attempts;
mod choice;
mod heat;
mod keys;
mod labels;
mod rates;
mod screen;
mod sixteen;
mod state;
mod terminal;
mod view;

#[cfg(test)]
mod tests;

pub use screen::{Options, Screen};
pub use state::State;
pub use terminal::restore;
