//! The text of `/proc/PID/mountinfo` (Documentation/filesystems/proc.rst, section 3.5).
//!
//! The text is parsed as bytes: every user who may mount can choose a mount point's name, and one name that is not
//! UTF-8 must not hide the other mounts.

use std::{
    ffi::OsString,
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::{
    file_system::is_fuse,
    path::{safe, safe_path},
    raw_path,
};

/// Device number of a superblock. Major 0 is for file systems without a device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct Device {
    /// The 8 of `8:1`.
    pub major: u32,
    /// The 1 of `8:1`.
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':').and_then(|(major, minor)| {
            Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
        });
        parts.ok_or_else(|| format!("{text:?} is not MAJOR:MINOR, as in 8:1"))
    }
}

/// One mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// `mnt_id`, unique on the node across all namespaces while the mount exists.
    pub id: u32,
    /// The parent mount; for the root of a namespace, an id that is not in the table.
    pub parent: u32,
    /// The mount point, as the process that owns the table sees it.
    #[serde(with = "raw_path")]
    pub point: PathBuf,
    /// The directory of its file system that is mounted.
    #[serde(with = "raw_path")]
    pub root: PathBuf,
    /// Options of this mount, such as `rw,noatime`.
    pub options: String,
    /// Peer group: mounts below this one propagate to all members.
    pub shared: Option<u32>,
    /// Peer group from which this mount receives mounts and unmounts.
    pub master: Option<u32>,
    /// File system type.
    pub fs_type: String,
    /// Its device, or the source as the type defines it.
    pub source: String,
    /// Device of the superblock.
    pub device: Device,
    /// Options of the superblock, such as `ro,errors=remount-ro`. To save memory, only these are kept: all of an
    /// overlay, since they name its layers; the server's address of NFS; the serving user of FUSE; otherwise those
    /// that indicate health ([`tells_health`]).
    pub super_options: String,
}

impl Mount {
    /// The file system, in a few words.
    pub fn describe(&self) -> String {
        let what = if self.root.as_os_str() == "/" {
            format!("{} of type {}", self.source, self.fs_type)
        } else {
            format!("directory {} of {} ({})", safe_path(&self.root), self.source, self.fs_type)
        };
        format!("{what}, device {}", self.device)
    }

    /// Whether this mount is read-only.
    pub fn is_read_only(&self) -> bool {
        has_option(&self.options, "ro")
    }

    /// Whether its whole file system is read-only. Since Linux 6.15, ext4 says `emergency_ro` where an error has made it
    /// read-only (fs/ext4/super.c, `ext4_handle_error`); before, it set `ro`.
    pub fn is_super_read_only(&self) -> bool {
        ["ro", EMERGENCY].iter().any(|option| has_option(&self.super_options, option))
    }
}

impl Mount {
    /// The value of an option of the superblock, such as of `addr` in `addr=10.0.0.1`.
    pub fn super_option(&self, name: &str) -> Option<&str> {
        let mut options = self.super_options.split(',').filter_map(|it| it.split_once('='));
        options.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Whether it is a FUSE mount of a user other than root. Such a user chooses the mount point, and the server
    /// chooses content and ownership of the files.
    pub fn is_a_users(&self) -> bool {
        is_fuse(&self.fs_type) && self.super_option("user_id").is_some_and(|user| user != "0")
    }
}

/// The option of a file system that an error has made read-only, until it is unmounted and mounted again.
pub const EMERGENCY: &str = "emergency_ro";

fn has_option(options: &str, name: &str) -> bool {
    options.split(',').any(|option| option == name)
}

/// Whether an option of a superblock says that it is read-only or was shut down, or how it handles errors: ext4,
/// XFS, btrfs and f2fs, in their `show_options`.
pub fn tells_health(option: &str) -> bool {
    matches!(option, "ro" | "shutdown" | EMERGENCY | "norecovery") || option.starts_with("errors=")
}

/// Whether an option of an NFS mount is part of the server's address (fs/nfs/super.c, `nfs_show_mount_options`).
fn tells_server(option: &str) -> bool {
    option.starts_with("addr=") || option.starts_with("port=")
}

/// Whether an option of a FUSE mount says that a user other than root serves it (`fuse_show_options` in fs/fuse/inode.c).
fn tells_user(option: &str) -> bool {
    option.starts_with("user_id=") && option != "user_id=0"
}

/// Parses all well-formed lines; the kernel writes no others.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// `36 35 98:0 /root /point rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw,errors=continue`
fn line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut next = || fields.next();
    let mut mount = Mount {
        id: number(next()?)?,
        parent: number(next()?)?,
        device: std::str::from_utf8(next()?).ok()?.parse().ok()?,
        root: unescape(next()?),
        point: unescape(next()?),
        options: text(next()?),
        ..Mount::default()
    };
    loop {
        match next()? {
            b"-" => break,
            tag => {
                if let Some(group) = tag.strip_prefix(b"shared:") {
                    mount.shared = number(group);
                } else if let Some(group) = tag.strip_prefix(b"master:") {
                    mount.master = number(group);
                }
            }
        }
    }
    mount.fs_type = text(next()?);
    mount.source = safe(unescape(next()?).as_os_str().as_encoded_bytes()).into_owned();
    // Always present; a recorded line may be truncated.
    let options = text(next().unwrap_or_default());
    mount.super_options = if mount.fs_type == "overlay" {
        options
    } else {
        let is_nfs = mount.fs_type.starts_with("nfs");
        let is_fuse = is_fuse(&mount.fs_type);
        let kept = |option: &&str| {
            tells_health(option)
                || (is_nfs && tells_server(option))
                || (is_fuse && tells_user(option))
        };
        options.split(',').filter(kept).collect::<Vec<_>>().join(",")
    };
    Some(mount)
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

/// Decodes the kernel's `\ooo` escapes.
pub fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let (byte, tail) = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), tail)
            }
            _ => (*first, after),
        };
        path.push(byte);
        rest = tail;
    }
    OsString::from_vec(path).into()
}

/// Encodes a path as the kernel does (`seq_path` in fs/proc_namespace.c).
pub fn escape(path: &Path) -> Vec<u8> {
    let mut field = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => {
                field.extend_from_slice(format!("\\{byte:03o}").as_bytes())
            }
            byte => field.push(*byte),
        }
    }
    field
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

    use super::*;

    #[test]
    fn every_field_is_read() {
        let text = b"36 35 98:0 /mnt1 /mnt2 ro,noatime shared:1 master:2 propagate_from:2 - ext3 \
            /dev/root rw,errors=continue\n";
        let [mount] = parse(text).try_into().unwrap();
        assert_eq!((mount.id, mount.parent), (36, 35));
        assert_eq!(mount.device, Device { major: 98, minor: 0 });
        assert_eq!(
            (mount.root.as_path(), mount.point.as_path()),
            ("/mnt1".as_ref(), "/mnt2".as_ref())
        );
        assert_eq!((mount.shared, mount.master), (Some(1), Some(2)));
        assert_eq!((mount.fs_type.as_str(), mount.source.as_str()), ("ext3", "/dev/root"));
        assert!(mount.is_read_only() && !mount.is_super_read_only());
        assert_eq!(mount.super_options, "errors=continue");
        assert_eq!(mount.describe(), "directory /mnt1 of /dev/root (ext3), device 98:0");
    }

    /// As on Linux 6.18, after an error with `errors=remount-ro`.
    #[test]
    fn a_file_system_that_an_error_made_read_only_is_read_only() {
        let text =
            b"43 27 7:0 / /k rw,relatime - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro\n";
        let [mount] = parse(text).try_into().unwrap();
        assert!(!mount.is_read_only() && mount.is_super_read_only());
    }

    #[test]
    fn odd_names_are_read_and_hide_nothing() {
        let text = b"36 35 98:0 / /mnt\\0402/a\\134b rw - overlay \xff rw,lowerdir=/l:/m\n\
            nonsense\n37 36 0:5 /\xff /x rw -  none\n38 36 0:5 /\xff /y rw - tmpfs  rw\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[0].point, Path::new(r"/mnt 2/a\b"));
        assert_eq!(mounts[0].source, r"\xff");
        assert_eq!(mounts[0].super_options, "rw,lowerdir=/l:/m");
        assert_eq!(mounts[2].root, Path::new(OsStr::from_bytes(b"/\xff")));
        assert_eq!(mounts[2].source, "");
    }

    #[test]
    fn a_users_fuse_is_known_by_who_serves_it() {
        let of = |fs_type: &str, user: u32| {
            let line = format!("1 0 0:9 / /x rw - {fs_type} x rw,user_id={user},group_id=0\n");
            parse(line.as_bytes())[0].is_a_users()
        };
        assert!(of("fuse", 1000) && of("fuse.sshfs", 1000) && of("fuseblk", 1000));
        assert!(!of("fuse.gcsfuse", 0) && !of("ext4", 1000));
    }

    #[test]
    fn a_device_is_typed_as_it_is_shown() {
        assert_eq!("8:1".parse(), Ok(Device { major: 8, minor: 1 }));
        for wrong in ["", "8", "8:", "8:x", "-1:0"] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
        assert_eq!(Device { major: 7, minor: 0 }.to_string(), "7:0");
    }
}
