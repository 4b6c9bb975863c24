//! Reads field offsets from BTF, the kernel's description of its own types.
//!
//! aya parses BTF too but keeps the members of structures to itself. The format is that of
//! Documentation/bpf/btf.rst in the kernel's source.

use std::collections::HashMap;

use thiserror::Error;

/// Why BTF could not be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BtfError {
    /// The data does not start like BTF of this machine's byte order.
    #[error("not BTF: bad magic number")]
    Magic,
    /// A section or a type reaches past the end.
    #[error("BTF is truncated at byte {0}")]
    Truncated(usize),
    /// A type of a kind that this reader does not know, so its length is unknown too.
    #[error("BTF type {id} is of unknown kind {kind}")]
    Kind {
        /// Its number.
        id: u32,
        /// Its kind.
        kind: u32,
    },
}

const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNCTION: u32 = 12;
/// Kinds that are aliases of another type: typedef, volatile, const, restrict, type tag.
const ALIASES: [u32; 5] = [8, 9, 10, 11, 18];
/// Limit of anonymous members searched for one field. The largest structures of a kernel have some dozens; in damaged
/// data they may form a cycle.
const ANONYMOUS: u32 = 256;
/// Bytes of the header of a type, and of a member of a structure.
const HEAD: usize = 12;
const MEMBER: usize = 12;

/// A kernel's types. A kernel has some 150,000, of which few are asked for, so only the start of each is kept.
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Offset of each type; the first one has number 1.
    starts: Vec<usize>,
    structs: HashMap<&'a [u8], u32>,
}

/// The header of a type.
#[derive(Clone, Copy)]
struct Head {
    at: usize,
    name: u32,
    info: u32,
    /// Target type of an alias.
    target: u32,
}

impl Head {
    fn read(types: &[u8], at: usize) -> Result<Self, BtfError> {
        let [name, info, target] = [0, 4, 8].map(|field| word(types, at + field));
        Ok(Self { at, name: name?, info: info?, target: target? })
    }

    fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }

    fn count(self) -> usize {
        (self.info & 0xffff) as usize
    }

    /// Set when members have bit-field encoding.
    fn flag(self) -> bool {
        self.info >> 31 != 0
    }
}

struct Member {
    name: u32,
    kind: u32,
    /// In bytes
    offset: u32,
}

fn word(data: &[u8], at: usize) -> Result<u32, BtfError> {
    let bytes = data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_ne_bytes).ok_or(BtfError::Truncated(at))
}

impl<'a> Btf<'a> {
    /// Parses the content of `/sys/kernel/btf/vmlinux`.
    pub fn parse(data: &'a [u8]) -> Result<Self, BtfError> {
        if word(data, 0)? as u16 != MAGIC {
            return Err(BtfError::Magic);
        }
        let header = word(data, 4)? as usize;
        let section = |at: usize| -> Result<&'a [u8], BtfError> {
            let start = header + word(data, at)? as usize;
            let end = start + word(data, at + 4)? as usize;
            data.get(start..end).ok_or(BtfError::Truncated(start))
        };
        let (types, strings) = (section(8)?, section(16)?);
        let mut btf = Self { types, strings, starts: Vec::new(), structs: HashMap::new() };
        let mut at = 0;
        while at < types.len() {
            let head = Head::read(types, at)?;
            btf.starts.push(at);
            let id = btf.starts.len() as u32;
            if head.kind() == STRUCT && head.name != 0 {
                btf.structs.entry(btf.string(head.name)).or_insert(id);
            }
            at += HEAD + length_behind(head).ok_or(BtfError::Kind { id, kind: head.kind() })?;
        }
        if at > types.len() {
            return Err(BtfError::Truncated(types.len()));
        }
        Ok(btf)
    }

    fn string(&self, offset: u32) -> &'a [u8] {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        rest.split(|b| *b == 0).next().unwrap_or_default()
    }

    /// The type of this number, with aliases resolved.
    fn get(&self, mut id: u32) -> Option<Head> {
        // No type has this many aliases; in damaged data they may form a cycle.
        for _ in 0..64 {
            let start = *self.starts.get((id as usize).checked_sub(1)?)?;
            let head = Head::read(self.types, start).ok()?;
            if !ALIASES.contains(&head.kind()) {
                return Some(head);
            }
            id = head.target;
        }
        None
    }

    /// Byte offset of a field such as `d_name.hash_len`, looking through anonymous members; `None`
    /// when this kernel has no such field.
    pub fn offset(&self, structure: &str, field: &str) -> Option<u32> {
        let mut id = *self.structs.get(structure.as_bytes())?;
        let mut offset: u32 = 0;
        for name in field.split('.') {
            let mut left = ANONYMOUS;
            let (at, kind) = self.field(self.get(id)?, name.as_bytes(), &mut left)?;
            offset = offset.checked_add(at)?;
            id = kind;
        }
        Some(offset)
    }

    /// The number of a structure.
    pub fn structure(&self, name: &str) -> Option<u32> {
        self.structs.get(name.as_bytes()).copied()
    }

    /// The number of a function of this name.
    pub fn function(&self, name: &str) -> Option<u32> {
        let heads = self.starts.iter().map(|start| Head::read(self.types, *start).ok());
        let is_it = |head: Option<Head>| {
            head.is_some_and(|it| it.kind() == FUNCTION && self.string(it.name) == name.as_bytes())
        };
        let at = heads.map(is_it).position(|is_it| is_it)?;
        u32::try_from(at + 1).ok()
    }

    /// Whether the kernel has a function of this name that probes can attach to.
    pub fn has_function(&self, name: &str) -> bool {
        self.function(name).is_some()
    }

    /// Offset and type of a field; at most `left` anonymous members are searched.
    fn field(&self, of: Head, name: &[u8], left: &mut u32) -> Option<(u32, u32)> {
        if let Some(m) = self.members(of).find(|m| self.string(m.name) == name) {
            return Some((m.offset, m.kind));
        }
        self.members(of).filter(|m| m.name == 0).find_map(|m| {
            *left = left.checked_sub(1)?;
            let (at, kind) = self.field(self.get(m.kind)?, name, left)?;
            Some((m.offset.checked_add(at)?, kind))
        })
    }

    fn members(&self, of: Head) -> impl Iterator<Item = Member> {
        let count = if [STRUCT, UNION].contains(&of.kind()) { of.count() } else { 0 };
        (0..count).filter_map(move |m| {
            let at = of.at + HEAD + m * MEMBER;
            let [name, kind, bits] = [0, 4, 8].map(|part| word(self.types, at + part).ok());
            let bits = if of.flag() { bits? & 0xff_ffff } else { bits? };
            Some(Member { name: name?, kind: kind?, offset: bits / 8 })
        })
    }
}

/// Bytes after the header; `None` when the kind is unknown.
fn length_behind(head: Head) -> Option<usize> {
    let count = head.count();
    Some(match head.kind() {
        STRUCT | UNION => MEMBER * count,
        1 | 14 | 17 => 4,
        3 => 12,
        6 | 13 => 8 * count,
        15 | 19 => 12 * count,
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// struct outer { u32 a; union { u32 x; inner_t y; }; } with inner_t = struct { u64 h; u32 deep }
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0a\0x\0y\0inner_t\0h\0deep\0";
        let name = |n: &str| {
            let needle = format!("\0{n}\0");
            let at = strings.windows(needle.len()).position(|w| w == needle.as_bytes());
            at.unwrap() as u32 + 1
        };
        let info = |kind: u32, count: u32| kind << 24 | count;
        let types: Vec<u32> = [
            vec![0, info(1, 0), 4, 32],
            vec![0, info(4, 2), 16, name("h"), 1, 0, name("deep"), 1, 64],
            vec![name("inner_t"), info(8, 0), 2],
            vec![0, info(5, 2), 16, name("x"), 1, 0, name("y"), 3, 0],
            vec![name("outer"), info(4, 2), 24, name("a"), 1, 0, 0, 4, 64],
            vec![name("deep"), info(12, 0), 1],
        ]
        .concat();
        let len = types.len() as u32 * 4;
        let mut out = Vec::new();
        for word in [u32::from(MAGIC) | 1 << 16, 24, 0, len, len, strings.len() as u32] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(types.iter().flat_map(|w| w.to_ne_bytes()));
        out.extend(strings);
        out
    }

    #[test]
    fn fuzz_btf() {
        podstuck_fuzz::fuzz("btf", |input| {
            let Ok(btf) = Btf::parse(input) else { return };
            for field in ["a", "y.deep", "x", "deep", "none"] {
                let _ = btf.offset("outer", field);
            }
            let _ = btf.has_function("deep");
        });
    }

    #[test]
    fn fields_are_found_through_typedefs_and_anonymous_members() {
        let sample = sample();
        let btf = Btf::parse(&sample).unwrap();
        assert_eq!(btf.offset("outer", "a"), Some(0));
        assert_eq!(btf.offset("outer", "y.deep"), Some(16));
        assert_eq!(btf.offset("outer", "nothing"), None);
        assert_eq!(btf.offset("nobody", "a"), None);
    }

    #[test]
    fn functions_are_found_by_name() {
        let sample = sample();
        let btf = Btf::parse(&sample).unwrap();
        assert!(btf.has_function("deep") && !btf.has_function("outer"));
        assert_eq!((btf.function("deep"), btf.structure("outer")), (Some(6), Some(5)));
        assert_eq!((btf.function("none"), btf.structure("deep")), (None, None));
    }

    #[test]
    fn damage_is_an_error_not_a_panic() {
        let sample = sample();
        for len in 0..sample.len() {
            assert!(Btf::parse(&sample[..len]).is_err(), "cut to {len} bytes");
        }
        assert_eq!(Btf::parse(&[0; 64]).err(), Some(BtfError::Magic));
        let mut odd = sample;
        odd[24 + 7] = 0x1f;
        assert_eq!(Btf::parse(&odd).err(), Some(BtfError::Kind { id: 1, kind: 31 }));
    }
}
