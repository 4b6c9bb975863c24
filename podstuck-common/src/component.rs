//! The components of a path and their hashes, which are the same in the kernel and in user space.

/// Size of a component buffer: the longest name that Linux allows, and a NUL.
pub const NAME_SIZE: usize = 256;
/// Size of a component buffer, in words.
pub const NAME_WORDS: usize = NAME_SIZE / 8;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Folds one word into a hash.
#[inline(always)]
pub const fn mix(hash: u64, word: u64) -> u64 {
    let h = (hash ^ word).wrapping_mul(MULTIPLIER);
    h ^ (h >> 29)
}

/// Hash of a component that is stored zero-padded in words; `len` is its length in bytes.
#[inline(always)]
pub fn component_hash(words: &[u64; NAME_WORDS], len: u32) -> u64 {
    let mut hash = 0;
    let mut i = 0;
    while i < NAME_WORDS {
        if i as u32 * 8 >= len {
            break;
        }
        hash = mix(hash, words[i]);
        i += 1;
    }
    mix(hash, len as u64)
}

/// The eight bytes from byte `at`, out of two aligned words, the first of which contains that byte.
#[inline(always)]
pub const fn unaligned(first: u64, second: u64, at: u32) -> u64 {
    let shift = (at & 7) * 8;
    // In two steps, because a shift by 64 is not defined.
    first >> shift | (second << 1) << (63 - shift)
}

/// The end of a component within the next eight bytes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComponentEnd {
    /// The bytes before the end, zero-padded.
    pub bytes: u64,
    /// Number of these bytes, at most seven.
    pub len: u32,
    /// Whether the path ends here as well.
    pub last: bool,
}

impl ComponentEnd {
    /// Finds the first `/` or NUL. The first byte of the path is the lowest byte of the word.
    #[inline(always)]
    pub const fn find(word: u64) -> Option<Self> {
        let slash = zero_bytes(word ^ (ONES * b'/' as u64));
        let nul = zero_bytes(word);
        let ends = slash | nul;
        if ends == 0 {
            return None;
        }
        let lowest = ends & ends.wrapping_neg();
        let before = (lowest >> 7) - 1;
        let len = ((before & ONES).wrapping_mul(ONES) >> 56) as u32;
        Some(Self { bytes: word & before, len, last: nul & lowest != 0 })
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// Sets the highest bit of each zero byte. Because of the borrow, bytes above the first zero byte may be marked
/// incorrectly.
#[inline(always)]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & ONES << 7
}

/// [`component_hash`] of a name in user space. Names are at most 255 bytes long.
pub fn name_hash(name: &[u8]) -> u64 {
    let mut words = [0; NAME_WORDS];
    let name = &name[..name.len().min(NAME_SIZE - 1)];
    for (i, byte) in name.iter().enumerate() {
        words[i / 8] |= (*byte as u64) << (8 * (i % 8));
    }
    component_hash(&words, name.len() as u32)
}

/// Rolling hash of an absolute path: the value of [`crate::trail::Trail::path`] after its last component.
pub fn path_hash(path: &[u8]) -> u64 {
    components(path).fold(0, |hash, name| mix(hash, name_hash(name)))
}

/// The components of a path, without empty ones and `.`.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_double_slashes_change_nothing() {
        assert_eq!(path_hash(b"/a//b/./c/"), path_hash(b"/a/b/c"));
        assert_ne!(path_hash(b"/ab/c"), path_hash(b"/a/bc"));
    }

    /// Hashes of the components, computed as the probes do.
    fn by_words(path: &[u8]) -> Vec<u64> {
        let mut words = vec![0_u64; path.len() / 8 + 2];
        for (i, byte) in path.iter().enumerate() {
            words[i / 8] |= u64::from(*byte) << (8 * (i % 8));
        }
        let (mut hashes, mut hash, mut len, mut at) = (Vec::new(), 0, 0, 0_u32);
        loop {
            let index = at as usize / 8;
            let word = unaligned(words[index], words[index + 1], at);
            let Some(end) = ComponentEnd::find(word) else {
                (hash, len, at) = (mix(hash, word), len + 8, at + 8);
                continue;
            };
            hash = if end.len == 0 { hash } else { mix(hash, end.bytes) };
            len += end.len;
            if len != 0 {
                hashes.push(mix(hash, u64::from(len)));
            }
            (hash, len, at) = (0, 0, at + end.len + 1);
            if end.last {
                return hashes;
            }
        }
    }

    #[test]
    fn a_path_read_by_words_has_the_hashes_of_its_names() {
        let long = "x".repeat(255);
        let names =
            ["a", "0123456", "01234567", "012345678", "\u{ff}\u{1}\u{2f00}.", "/", &long, "b"];
        for first in 0..names.len() {
            let path = names[first..].join("/");
            let expected: Vec<u64> = components(path.as_bytes()).map(name_hash).collect();
            assert_eq!(by_words(path.as_bytes()), expected, "{path}");
            assert_eq!(by_words(format!("//{path}//").as_bytes()), expected, "{path}");
        }
        assert!(by_words(b"").is_empty());
    }

    #[test]
    fn names_of_every_length_have_hashes_of_their_own() {
        let name = [b'x'; 255];
        let mut seen: Vec<u64> = (1..=255).map(|n| name_hash(&name[..n])).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 255);
    }
}
