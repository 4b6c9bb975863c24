//! The screen of `watch`, `diagnose` and `replay` on a terminal: the same findings, calls and counts as text and
//! JSON have, as they stand.
//!
//! What is known ([`state`]), what a person chose ([`choice`], by [`keys`]) and how both look ([`view`]) are pure.
//! [`terminal`] alone touches the terminal, from the thread of [`screen`]: a terminal that takes nothing keeps its
//! own screen back, and no event.
//!
//! Names were chosen by others. Every text goes through [`podstuck_model::path::safe`] before it is drawn.

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
