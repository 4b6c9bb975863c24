//! Pictures, each with the same numbers as a table.

pub(super) mod heat;
pub(super) mod histogram;
pub(super) mod timeline;

use maud::{Markup, html};

use super::{escape::Shown, scale::n};

/// A figure: the picture, what it shows, and the table.
pub(super) fn figure(title: &str, caption: &str, picture: &Markup, table: &Markup) -> Markup {
    html! {
        figure {
            figcaption { strong { (Shown(title)) } " " (Shown(caption)) }
            (picture)
            details {
                summary { "The same as a table" }
                (table)
            }
        }
    }
}

/// Words in a picture.
fn label(x: f64, y: f64, anchor: &str, words: &str) -> Markup {
    html! { text x=(n(x)) y=(n(y)) text-anchor=(anchor) { (Shown(words)) } }
}

/// A line in a picture.
fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    html! { line class=(class) x1=(n(from.0)) y1=(n(from.1)) x2=(n(to.0)) y2=(n(to.1)) {} }
}
