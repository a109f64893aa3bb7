//! Writes the archive that a Linux kernel unpacks as its first file system: cpio in its "newc" form (the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// An archive in the making.
pub(crate) struct Initramfs {
    bytes: Vec<u8>,
    directories: BTreeSet<PathBuf>,
    entries: u32,
}

impl Initramfs {
    /// An empty archive.
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), directories: BTreeSet::new(), entries: 0 }
    }

    /// Adds a file at an absolute path, and the directories above it.
    pub(crate) fn file(&mut self, path: &Path, contents: &[u8], mode: u32) {
        if let Some(parent) = path.parent() {
            self.directory(parent);
        }
        self.entry(path, FILE | mode, contents);
    }

    /// Adds a directory and those above it, unless it is there.
    pub(crate) fn directory(&mut self, path: &Path) {
        if path == Path::new("/") || !self.directories.insert(path.to_owned()) {
            return;
        }
        if let Some(parent) = path.parent() {
            self.directory(parent);
        }
        self.entry(path, DIRECTORY | 0o755, &[]);
    }

    /// Closes the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("/TRAILER!!!"), 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &Path, mode: u32, contents: &[u8]) {
        // Names are relative to the root.
        let name = path.strip_prefix("/").unwrap_or(path).as_os_str().as_bytes();
        self.entries += 1;
        let fields = [
            self.entries,
            mode,
            0, // user
            0, // group
            1, // links
            0, // time
            contents.len() as u32,
            0, // device, major
            0, // device, minor
            0,
            0,
            name.len() as u32 + 1,
            0, // checksum
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name);
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    /// Names and contents begin at multiples of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_their_files_and_once() {
        let mut archive = Initramfs::new();
        archive.file(Path::new("/usr/lib/a"), b"one", 0o644);
        archive.file(Path::new("/usr/lib/b"), b"two", 0o644);
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap();
        assert!(at("usr") < at("usr/lib") && at("usr/lib") < at("usr/lib/a"));
        assert_eq!(text.matches("usr/lib\0").count(), 1);
        assert_eq!(text.matches("070701").count(), 5, "two directories, two files, the trailer");
        assert!(text.contains("one\0") && text.contains("two\0"));
    }
}
