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
/// Kinds that only stand for another type: typedef, volatile, const, restrict, type tag.
const ALIASES: [u32; 5] = [8, 9, 10, 11, 18];

struct Type {
    name: u32,
    kind: u32,
    /// Set when members have bit-field encoding.
    flag: bool,
    /// Target type of an alias.
    target: u32,
    members: Vec<Member>,
}

struct Member {
    name: u32,
    kind: u32,
    offset: u32,
}

/// Structures of a kernel by name.
pub struct Btf {
    types: Vec<Type>,
    strings: Vec<u8>,
    structs: HashMap<Vec<u8>, u32>,
}

impl Btf {
    /// Parses the content of `/sys/kernel/btf/vmlinux`.
    pub fn parse(data: &[u8]) -> Result<Self, BtfError> {
        let word = |at: usize| {
            let bytes = data.get(at..at + 4).and_then(|b| b.try_into().ok());
            bytes.map(u32::from_ne_bytes).ok_or(BtfError::Truncated(at))
        };
        if word(0)? as u16 != MAGIC {
            return Err(BtfError::Magic);
        }
        let header = word(4)? as usize;
        let section = |at: usize| -> Result<&[u8], BtfError> {
            let start = header + word(at)? as usize;
            data.get(start..start + word(at + 4)? as usize).ok_or(BtfError::Truncated(start))
        };
        let strings = section(16)?.to_vec();
        let types = parse_types(section(8)?)?;
        let mut btf = Self { types, strings, structs: HashMap::new() };
        for (index, t) in btf.types.iter().enumerate().rev() {
            if t.kind == STRUCT && t.name != 0 {
                btf.structs.insert(btf.string(t.name).to_vec(), index as u32 + 1);
            }
        }
        Ok(btf)
    }

    fn string(&self, offset: u32) -> &[u8] {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        rest.split(|b| *b == 0).next().unwrap_or_default()
    }

    fn get(&self, id: u32) -> Option<&Type> {
        let mut t = self.types.get((id as usize).checked_sub(1)?)?;
        while ALIASES.contains(&t.kind) {
            t = self.types.get((t.target as usize).checked_sub(1)?)?;
        }
        Some(t)
    }

    /// Byte offset of a field such as `d_name.hash_len`, looking through anonymous members; `None`
    /// when this kernel has no such field.
    pub fn offset(&self, structure: &str, field: &str) -> Option<u32> {
        let mut id = *self.structs.get(structure.as_bytes())?;
        let mut offset = 0;
        for name in field.split('.') {
            let (at, kind) = self.member(self.get(id)?, name.as_bytes())?;
            offset += at;
            id = kind;
        }
        Some(offset)
    }

    /// Whether the kernel has a function of this name that probes can hang on.
    pub fn has_function(&self, name: &str) -> bool {
        let mut functions = self.types.iter().filter(|t| t.kind == FUNCTION);
        functions.any(|t| self.string(t.name) == name.as_bytes())
    }

    fn member(&self, of: &Type, name: &[u8]) -> Option<(u32, u32)> {
        let offset = |m: &Member| if of.flag { m.offset & 0xff_ffff } else { m.offset } / 8;
        let named = of.members.iter().find(|m| self.string(m.name) == name);
        if let Some(m) = named {
            return Some((offset(m), m.kind));
        }
        of.members.iter().filter(|m| m.name == 0).find_map(|m| {
            let (at, kind) = self.member(self.get(m.kind)?, name)?;
            Some((offset(m) + at, kind))
        })
    }
}

fn parse_types(data: &[u8]) -> Result<Vec<Type>, BtfError> {
    let word = |at: usize| {
        let bytes = data.get(at..at + 4).and_then(|b| b.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or(BtfError::Truncated(at))
    };
    let mut types = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let info = word(at + 4)?;
        let count = (info & 0xffff) as usize;
        let kind = info >> 24 & 0x1f;
        let mut t = Type {
            name: word(at)?,
            kind,
            flag: info >> 31 != 0,
            target: word(at + 8)?,
            members: Vec::new(),
        };
        at += 12;
        at += match kind {
            STRUCT | UNION => {
                for m in 0..count {
                    let (name, kind) = (word(at + 12 * m)?, word(at + 12 * m + 4)?);
                    t.members.push(Member { name, kind, offset: word(at + 12 * m + 8)? });
                }
                12 * count
            }
            1 | 14 | 17 => 4,
            3 => 12,
            6 | 13 => 8 * count,
            15 | 19 => 12 * count,
            2 | 7..=12 | 16 | 18 => 0,
            kind => return Err(BtfError::Kind { id: types.len() as u32 + 1, kind }),
        };
        types.push(t);
    }
    Ok(types)
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
    fn fields_are_found_through_typedefs_and_anonymous_members() {
        let btf = Btf::parse(&sample()).unwrap();
        assert_eq!(btf.offset("outer", "a"), Some(0));
        assert_eq!(btf.offset("outer", "y.deep"), Some(16));
        assert_eq!(btf.offset("outer", "nothing"), None);
        assert_eq!(btf.offset("nobody", "a"), None);
    }

    #[test]
    fn functions_are_found_by_name() {
        let btf = Btf::parse(&sample()).unwrap();
        assert!(btf.has_function("deep") && !btf.has_function("outer"));
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
