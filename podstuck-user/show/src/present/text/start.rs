//! Describes a run in a few lines.

use super::nouns::text;
use crate::present::{
    style::{Ink, Style},
    words,
};
use podstuck_model::summary::Start;

/// Version, kernel and target; what is missing, if anything.
pub fn start(start: &Start, style: Style) -> String {
    let target = start.target.as_deref().map_or("the whole node".into(), text);
    let mut out = format!(
        "podstuck {} on Linux {}, watching {target} with {} ({})\n",
        text(&start.version),
        text(&start.kernel),
        words::plural(start.probes_attached.len() as u64, "probe", "probes"),
        text(&start.backend)
    );
    let roots: Vec<_> = start.roots_searched.iter().map(|r| text(r)).collect();
    let roots = if roots.is_empty() { "no directory".into() } else { roots.join(", ") };
    out.push_str(&format!("  {} {roots}\n", style.paint(Ink::Label, "pods are looked for in")));
    if let Some(api) = &start.api {
        out.push_str(&style.wrap("  ", "    ", &text(api)));
    }
    for missing in &start.probes_missing {
        out.push_str(&style.wrap("  missing: ", "    ", &text(missing)));
    }
    for what in &start.not_covered {
        out.push_str(&style.wrap("  not covered: ", "    ", &text(what)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample::{self, HOSTILE};

    #[test]
    fn a_run_is_introduced() {
        assert_eq!(
            start(&sample::start(), Style::PLAIN),
            "podstuck 0.1.0 on Linux 6.1.0-18-amd64, watching pod shop/cart-0 with 2 probes (tracepoint)\n  \
             pods are looked for in /var/lib/kubelet\n  missing: sched_process_exec: not permitted\n  \
             not covered: calls of 32-bit programs: not shown\n"
        );
    }

    #[test]
    fn the_api_server_that_was_asked_is_named() {
        let asked = "API server https://10.0.0.1:6443, asked by kubelet's /k: 3 pods of node n1";
        let start_of = Start { api: Some(asked.into()), ..sample::start() };
        assert!(start(&start_of, Style::PLAIN).contains(&format!("\n  {asked}\n")));
    }

    #[test]
    fn names_stay_harmless() {
        let mut hostile = sample::start();
        hostile.api = Some(HOSTILE.into());
        hostile.target = Some(HOSTILE.into());
        hostile.roots_searched = vec![HOSTILE.into()];
        hostile.probes_missing = vec![HOSTILE.into()];
        hostile.not_covered = vec![HOSTILE.into()];
        let shown = start(&hostile, Style::PLAIN);
        assert_eq!((shown.matches('\u{1b}').count(), shown.lines().count()), (0, 5), "{shown}");
    }
}
