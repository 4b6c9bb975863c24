//! Names that the API server accepts.

/// A label of DNS-1123, as a namespace's name is.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// A subdomain of DNS-1123, as a pod's name is.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_api_server_accepts_are_valid() {
        let believed = |namespace: &str, name: &str| is_label(namespace) && is_subdomain(name);
        assert!(believed("kube-system", "etcd-10.0.0.1") && believed("0", &"a".repeat(253)));
        for name in ["", "-a", "a-", ".a", "a..b", "A", "é", "$(reboot)", "a b", "a\u{1b}[2J"] {
            assert!(!believed("shop", name), "{name:?}");
            assert!(!believed(name, "cart"), "{name:?}");
        }
        assert!(!believed("a.b", "cart") && !believed(&"a".repeat(64), "cart"));
        assert!(!believed("shop", &"a".repeat(254)));
    }
}
