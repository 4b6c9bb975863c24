//! Input and output of a run: `recording`, `export`, `present` (text and JSON), `tui` (a terminal's screen), and the
//! products of finished runs: `report` and `compare`. Renderers return text; other crates write it.

pub mod present;

pub mod export;
pub mod recording;

pub mod tui;

pub mod compare;
pub mod report;
