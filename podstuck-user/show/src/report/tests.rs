//! Names chosen by others stay text, and the numbers equal those of the exports.

use std::{collections::BTreeSet, sync::LazyLock, time::Duration};

use podstuck_fuzz::runner;
use proptest::{collection::vec, prelude::*, sample::select};
use regex::Regex;

use super::{Collector, Model, markdown, page};
use crate::present::{foreign::Foreign, sample};
use podstuck_engine::event::{Event, Run, Thresholds, What};
use podstuck_model::{
    finding::FindingState,
    time::{Clock, Monotonic},
};

/// Strings that end a text, an attribute, a comment, a block or a line, and would take effect then.
const TRIES: [&[u8]; 12] = [
    b"<script>alert(1)</script>",
    b"\"><img src=x onerror=alert(1)>",
    b"' onload='alert(1)",
    b"--><forged>",
    b"]]><forged>",
    b"</style><forged>",
    b"</title><forged>",
    b"&lt;forged&gt;",
    b"\n```\n# FORGED",
    b"\n~~~~\nFORGED",
    b"`````",
    b"javascript:alert(1)",
];

fn hostile() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let tries = vec(select(&TRIES[..]).prop_map(<[u8]>::to_vec), 1..6);
    (Foreign::any(), tries).prop_map(|(mut names, tries)| {
        names.extend(tries);
        names
    })
}

fn model(names: Vec<Vec<u8>>) -> Model {
    let mut all = Foreign::new(names);
    let run = Run {
        clock: Clock::new(sample::time(0), Monotonic(1)),
        start: all.start(),
        own_mnt_ns: 0,
        thresholds: Thresholds::default(),
        one_answer: true,
        pod: None,
        container: None,
        directory: None,
    };
    let mut collector = Collector::new(&run);
    let mut operation = operation_of(&mut all);
    for second in [1, 2, 4, 8] {
        operation.end = Monotonic(second * 1_000_000_000);
        let what = What::Operation(Box::new(operation.clone()));
        collector.take(&Event { at: operation.end, what });
    }
    collector.take_output(&podstuck_engine::engine::Output::Hung(Box::new(all.hung())));
    collector.take_output(&podstuck_engine::engine::Output::Progress(Box::new(all.progress())));
    let (diagnosis, summary, series) = (all.diagnosis(), all.summary(), all.series());
    let mut model = Model::of(run.start, diagnosis, summary, &collector);
    model = model.with_series(&series, &all.names(&series));
    for (number, name) in (0..4).zip([all.text(), all.text(), all.text(), all.text()]) {
        let kind = crate::export::intervals::Kind {
            syscall: "unlink".into(),
            outcome: "EBUSY".into(),
            plugin: name,
            component: "kubelet".into(),
        };
        model.intervals.add(Duration::from_secs(number), kind, 9 + number as u16, 3);
    }
    model
}

/// A call with names of others in every field.
fn operation_of(all: &mut Foreign) -> podstuck_model::operation::Operation {
    use std::sync::Arc;

    use podstuck_model::{
        call::{Call, Outcome},
        identity::Target,
        operation::Operation,
    };
    let finding = all.finding(FindingState::New);
    let mut actor = finding.actor.unwrap();
    actor.component = podstuck_model::identity::Component::Kubelet;
    let target = Target { pod: finding.pod, volume: finding.volume, ..Target::unknown() };
    Operation {
        path: finding.call.path.0,
        target: Arc::new(target),
        actor: Arc::new(actor),
        logged_in: Some(all.text().into()),
        ..podstuck_testing::samples::operation(Call::Umount2, Outcome(16))
    }
}

/// A page is text without markup, and these tags with these attributes.
static GRAMMAR: LazyLock<Regex> = LazyLock::new(|| {
    let tags = "a|article|body|br|caption|circle|code|dd|details|div|dl|dt|figcaption|figure|footer|h1|h2|h3|h4|\
                head|header|html|li|line|main|meta|nav|ol|p|path|pre|rect|section|span|strong|summary|svg|table|\
                tbody|td|text|th|thead|title|tr|ul";
    let names = "aria-label|aria-labelledby|charset|class|content|cx|cy|d|data-instance|data-ns|fill-opacity|height|\
                 href|http-equiv|id|lang|name|r|role|scope|tabindex|text-anchor|viewBox|width|x|x1|x2|y|y1|y2";
    Regex::new(&format!(
        r#"\A<!DOCTYPE html>(?:[^<>]|</?(?:{tags})(?: (?:{names})="[^"<>]*")*>|<style>[^<>]*</style>)*\z"#
    ))
    .unwrap()
});

static UNSEEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}[\p{Zs}--\x20]\u{2800}--\n]",
    )
    .unwrap()
});

fn without_style(page: &str) -> String {
    let (head, rest) = page.split_once("<style>").unwrap();
    let (style, rest) = rest.split_once("</style>").unwrap();
    // A child selector is the only use of these characters.
    assert!(!style.contains('<') && !style.contains("url(") && !style.contains("@import"));
    format!("{head}<style></style>{rest}")
}

#[test]
fn no_name_is_markup_or_unseen_in_a_page() {
    runner(200)
        .run(&hostile(), |names| {
            let page = without_style(&page(&model(names)));
            let unseen =
                UNSEEN.find(&page).map(|found| found.as_str().escape_unicode().to_string());
            assert_eq!(unseen, None, "{page}");
            assert!(GRAMMAR.is_match(&page), "{page}");
            for href in Regex::new("href=\"([^\"]*)\"").unwrap().captures_iter(&page) {
                assert!(href[1].starts_with('#'), "{}", &href[1]);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn no_name_is_markup_in_a_ticket() {
    // By CommonMark's rule, a fence ends at a line of at least as many of its ticks and nothing else.
    runner(200)
        .run(&hostile(), |names| {
            let text = markdown(&model(names));
            let (mut fence, mut outside): (Option<usize>, Vec<&str>) = (None, Vec::new());
            for line in text.split('\n') {
                let ticks = line.chars().take_while(|c| *c == '`').count();
                match fence {
                    None if ticks >= 3 => fence = Some(ticks),
                    None => outside.push(line),
                    Some(open) if ticks >= open && line.trim_end().len() == ticks => fence = None,
                    Some(_) => {}
                }
            }
            assert_eq!(fence, None, "{text}");
            let of_ours =
                Regex::new(r"^(|##+ [A-Z0-9][a-zA-Z0-9. ()`:,-]*|[A-Za-z0-9.,:() ]+)$").unwrap();
            for line in outside {
                assert!(of_ours.is_match(line), "{line:?} in {text}");
            }
            assert!(UNSEEN.find(&text).is_none(), "{text}");
            Ok(())
        })
        .unwrap();
}

#[test]
fn ids_are_unique_and_headings_in_order() {
    let page = page(&model(vec![b"name".to_vec()]));
    let ids: Vec<String> = Regex::new(" id=\"([^\"]*)\"")
        .unwrap()
        .captures_iter(&page)
        .map(|id| id[1].to_owned())
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    for reference in
        Regex::new("(?:labelledby=\"|href=\"#)([^\"]*)\"").unwrap().captures_iter(&page)
    {
        assert!(ids.contains(&reference[1].to_owned()), "{}", &reference[1]);
    }
    let mut level = 0;
    for heading in Regex::new("<h([1-6])").unwrap().captures_iter(&page) {
        let next: u32 = heading[1].parse().unwrap();
        assert!(next <= level + 1, "h{next} after h{level}");
        level = next;
    }
    for svg in Regex::new("<svg [^>]*>").unwrap().find_iter(&page) {
        assert!(
            svg.as_str().contains("role=\"img\"") && svg.as_str().contains("aria-label="),
            "{}",
            svg.as_str()
        );
    }
    assert_eq!(page.matches("<svg").count(), page.matches("<details>").count());
    assert!(page.contains("default-src 'none'"));
}
