//! Checks the contrast of a page's colours: WCAG 2.1 requires 4.5 for text, and 3 for lines of a figure.

use std::collections::BTreeMap;

use regex::Regex;

const STYLE: &str = include_str!("style.css");

/// The relative luminance of a colour, as in `#1b1f24`.
fn luminance(color: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn every_colour_can_be_read_in_light_and_dark() {
    assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
    let variable = Regex::new("--([a-z]+): (#[0-9a-f]{6});").unwrap();
    let (light, rest) = STYLE.split_once("@media (prefers-color-scheme: dark)").unwrap();
    let (dark, _) = rest.split_once("\n}").unwrap();
    for (name, part) in [("light", light), ("dark", dark)] {
        let colors: BTreeMap<&str, &str> = variable
            .captures_iter(part)
            .map(|it| (it.get(1).unwrap().as_str(), it.get(2).unwrap().as_str()))
            .collect();
        for text in ["text", "faint", "link", "critical", "warning", "info", "good", "mark"] {
            for ground in ["ground", "panel"] {
                let least = if text == "mark" { 3.0 } else { 4.5 };
                let found = contrast(colors[text], colors[ground]);
                assert!(found >= least, "{name}: {text} on {ground}: {found:.2}");
            }
        }
    }
}
