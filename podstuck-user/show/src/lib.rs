//! What a run is told and kept as: `recording`, `export`, `present` (text and JSON), `tui` (a terminal's screen), and
//! what is made of runs that are over: `report` and `compare`. Renderers return text; who writes it is elsewhere.

pub mod present;

pub mod export;
pub mod recording;

pub mod tui;

pub mod compare;
pub mod report;
