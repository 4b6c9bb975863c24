use super::*;

#[test]
fn what_takes_too_much_is_found() {
    let watchdog = Watchdog(Arc::default());
    let greedy = |input: &[u8]| drop(std::hint::black_box(vec![1_u8; input.len() << 20]));
    check(&greedy, b"1234567", &watchdog);
    let found =
        std::panic::catch_unwind(|| check(&greedy, b"123456789", &Watchdog(Arc::default())));
    assert!(found.is_err());
}

#[test]
fn what_failed_can_be_read_from_what_was_printed() {
    assert_eq!(shown(b"a\"\n\xff"), r#"b"a\"\n\xff""#);
    assert!(shown(&[b'x'; SHOWN + 1]).ends_with("x\"[... and more]"));
}
