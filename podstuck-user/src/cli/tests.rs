//! The help and the errors of the command line.

use super::*;

/// A terminal of 80 columns, and the lines that most terminals have at least.
const COLUMNS: usize = 80;
const LINES: usize = 40;

fn help(args: &[&str]) -> String {
    let command = Cli::command().term_width(COLUMNS);
    let typed = ["podstuck"].iter().chain(args);
    let shown = command.try_get_matches_from(typed).unwrap_err();
    assert_eq!(shown.kind(), ErrorKind::DisplayHelp, "{args:?}");
    shown.to_string()
}

#[test]
fn help_fits_a_screen_and_has_examples() {
    let command = Cli::command();
    let names = command.get_subcommands().filter(|it| !it.is_hide_set()).map(|it| it.get_name());
    for name in names.map(Some).chain([None]) {
        let typed: Vec<&str> = name.into_iter().chain(["--help"]).collect();
        let text = help(&typed);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= LINES, "{typed:?} has {} lines:\n{text}", lines.len());
        let widest = lines.iter().map(|line| line.chars().count()).max();
        assert!(widest <= Some(COLUMNS), "{text}");
        assert!(text.contains("\nExample"), "{typed:?}: {text}");
    }
}

#[test]
fn options_that_few_need_are_in_the_long_help_only() {
    for rare in ["--not-attempted-after", "--backend", "--fail-on-loss"] {
        assert!(!help(&["diagnose", "--help"]).contains(rare), "{rare}");
        assert!(!help(&["diagnose", "-h"]).contains(rare), "{rare}");
        assert!(help(&["diagnose", "--help-all"]).contains(rare), "{rare}");
    }
}

#[test]
fn a_near_match_is_suggested() {
    for (typed, near) in [
        (&["wacth"][..], "'watch'"),
        (&["watch", "--duraton", "3s"], "'--duration'"),
        (&["diagnose", "--pod_uid", "x"], "'--pod-uid'"),
        (&["watch", "--output", "jsn"], "'json'"),
        (&["--host-rot", "/host"], "'--host-root'"),
    ] {
        let all = ["podstuck"].iter().chain(typed);
        let error = Cli::command().try_get_matches_from(all).unwrap_err().to_string();
        assert!(error.contains(near), "{typed:?}: {error}");
    }
}

#[test]
fn a_pod_is_named_as_kubectl_names_it() {
    let pod = |words: &[&str]| {
        let typed = ["podstuck", "diagnose"].iter().chain(words);
        let mut cli = Cli::try_parse_from(typed).map_err(|error| error.to_string())?;
        let tracing = cli.command.as_mut().and_then(Command::tracing).unwrap();
        tracing.target.name_pod(tracing.namespace.as_deref())?;
        Ok::<_, String>(tracing.target.pod.clone().unwrap())
    };
    for words in [
        &["shop/cart-0"][..],
        &["cart-0", "-n", "shop"],
        &["-n", "shop", "cart-0"],
        &["pod/cart-0", "--namespace", "shop"],
        &["shop/cart-0", "-n", "shop"],
        &["--pod", "shop/cart-0"],
        &["--pod", "cart-0", "-n", "shop"],
    ] {
        assert_eq!(pod(words).as_deref(), Ok("shop/cart-0"), "{words:?}");
    }
    for (words, why) in [
        (&["cart-0"][..], "NAMESPACE/cart-0, or cart-0 -n NAMESPACE"),
        (&["shop/cart-0", "-n", "bar"], "and -n bar name two namespaces"),
        (&["-n", "shop"], "needs the name of a pod"),
        (&["shop/cart-0", "--pod-uid", "u"], "cannot be used with"),
        (&["--path", "/v", "-n", "shop"], "cannot be used with"),
        (&["shop/a", "shop/b"], "unexpected argument"),
    ] {
        let error = pod(words).unwrap_err();
        assert!(error.contains(why), "{words:?}: {error}");
    }
}

#[test]
fn the_definitions_are_sound() {
    Cli::command().debug_assert();
}
