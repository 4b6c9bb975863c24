//! The forms of a pod's UID.

/// Lengths of the groups of an API pod's UID.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
/// Length of a static pod's UID: kubelet uses a 128-bit hash of the manifest and its source.
const STATIC_LEN: usize = 32;

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Whether the text is exactly `len` lower-case hexadecimal digits.
pub(super) fn is_hex_of(text: &[u8], len: usize) -> bool {
    text.len() == len && text.iter().all(|b| is_hex(*b))
}

/// Whether it is a container id of containerd, CRI-O or Docker, or the id of a layer.
pub(crate) fn is_long_id(text: &[u8]) -> bool {
    is_hex_of(text, 64)
}

fn is_grouped(text: &[u8], separator: u8) -> bool {
    let mut groups = text.split(|b| *b == separator);
    GROUPS.iter().all(|len| groups.next().is_some_and(|group| is_hex_of(group, *len)))
        && groups.next().is_none()
}

/// Whether it is a UID as in the name of a pod's directory: dashed for API pods, 32 digits for static ones.
pub fn is_pod_uid(text: &[u8]) -> bool {
    is_hex_of(text, STATIC_LEN) || is_grouped(text, b'-')
}

/// Converts a UID from any spelling on a node (upper case; underscores, as in systemd's slices) to the spelling of the
/// pod's directory.
pub fn parse_pod_uid(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    if is_grouped(text.as_bytes(), b'_') {
        return Some(text.replace('_', "-"));
    }
    is_pod_uid(text.as_bytes()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const API: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const STATIC: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn both_forms_are_uids_and_nothing_else() {
        let table: [(&str, bool); 9] = [
            (API, true),
            (STATIC, true),
            ("0F0E0D0C-1111-2222-3333-444455556666", false),
            ("0f0e0d0c_1111_2222_3333_444455556666", false),
            ("0f0e0d0c-1111_2222-3333-444455556666", false),
            ("0f0e0d0c1-111-2222-3333-444455556666", false),
            ("0f0e0d0c-1111-2222-3333-44445555666g", false),
            ("0123456789abcdef0123456789abcde", false),
            ("", false),
        ];
        for (text, expected) in table {
            assert_eq!(is_pod_uid(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn spellings_of_a_node_become_that_of_the_directory() {
        assert_eq!(parse_pod_uid(API).as_deref(), Some(API));
        assert_eq!(parse_pod_uid(&API.replace('-', "_")).as_deref(), Some(API));
        assert_eq!(parse_pod_uid(&API.to_uppercase()).as_deref(), Some(API));
        assert_eq!(parse_pod_uid(STATIC).as_deref(), Some(STATIC));
        assert_eq!(parse_pod_uid("my-pod"), None);
        assert_eq!(parse_pod_uid("0f0e0d0c-1111_2222-3333-444455556666"), None);
    }
}
