//! A tree of files as a "newc" cpio archive, the form of an initramfs. Several
//! archives one after the other are one initramfs, later files winning.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Files to be packed, by their path without a leading `/`.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug)]
enum Node {
    Dir,
    Link(String),
    Bytes(u32, Vec<u8>),
    File(u32, PathBuf),
}

impl Tree {
    fn insert(&mut self, path: &str, node: Node) {
        let path = path.trim_start_matches('/');
        for (i, _) in path.match_indices('/') {
            self.nodes.entry(path[..i].to_owned()).or_insert(Node::Dir);
        }
        self.nodes.insert(path.to_owned(), node);
    }

    /// A folder; those above every file come by themselves.
    pub(crate) fn dir(&mut self, path: &str) {
        self.insert(path, Node::Dir);
    }

    /// A symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.insert(path, Node::Link(target.to_owned()));
    }

    /// A file of these bytes.
    pub(crate) fn bytes(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        self.insert(path, Node::Bytes(mode, bytes.into()));
    }

    /// A file of this machine, read when the archive is written.
    pub(crate) fn file(&mut self, path: &str, mode: u32, from: &Path) {
        self.insert(path, Node::File(mode, from.to_owned()));
    }

    /// Writes the archive. The same tree gives the same bytes.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut ino = 0;
        for (path, node) in &self.nodes {
            ino += 1;
            match node {
                Node::Dir => entry(out, ino, 0o040_755, path, b"")?,
                Node::Link(target) => entry(out, ino, 0o120_777, path, target.as_bytes())?,
                Node::Bytes(mode, bytes) => entry(out, ino, 0o100_000 | mode, path, bytes)?,
                Node::File(mode, from) => {
                    let named = |e: io::Error| {
                        io::Error::new(e.kind(), format!("`{}`: {e}", from.display()))
                    };
                    let bytes = fs::read(from).map_err(named)?;
                    entry(out, ino, 0o100_000 | mode, path, &bytes)?;
                }
            }
        }
        entry(out, 0, 0, "TRAILER!!!", b"")
    }
}

fn entry(out: &mut impl Write, ino: u32, mode: u32, path: &str, data: &[u8]) -> io::Result<()> {
    let too_long = |_| io::Error::other(format!("`{path}`: too large for an initramfs"));
    let size = u32::try_from(data.len()).map_err(too_long)?;
    let name_size = path.len() as u32 + 1;
    // ino mode uid gid nlink mtime size, device numbers, name's size, check.
    let fields = [ino, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
    let mut head = String::from("070701");
    for f in fields {
        head += &format!("{f:08x}");
    }
    head += path;
    head.push('\0');
    out.write_all(head.as_bytes())?;
    pad(out, head.len())?;
    out.write_all(data)?;
    pad(out, data.len())
}

/// Header with name and data each end on a multiple of four.
fn pad(out: &mut impl Write, written: usize) -> io::Result<()> {
    out.write_all(&[0; 3][..written.next_multiple_of(4) - written])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sample() -> Vec<u8> {
        let mut t = Tree::default();
        t.bytes("usr/bin/tool", 0o755, *b"hello");
        t.link("bin", "usr/bin");
        t.dir("/proc");
        let mut out = Vec::new();
        t.write(&mut out).unwrap();
        out
    }

    #[test]
    fn layout_is_newc() {
        let out = sample();
        assert_eq!(out.len() % 4, 0);
        let text = String::from_utf8_lossy(&out);
        let at = |s: &str| text.find(s).unwrap_or_else(|| panic!("no {s}"));
        assert!(at("usr/bin/tool\0") < at("TRAILER!!!\0"));
        // The field of the mode and that of the size of the one file.
        let head = at("usr/bin/tool\0") - 110;
        assert_eq!(&text[head..head + 6], "070701");
        assert_eq!(&text[head + 14..head + 22], "000081ed");
        assert_eq!(&text[head + 54..head + 62], "00000005");
    }

    /// Another program's reading of the same bytes; the two that may be
    /// installed print alike.
    #[test]
    fn cpio_lists_it() {
        let programs: [(&str, &[&str]); 2] = [("cpio", &["-it"]), ("busybox", &["cpio", "-it"])];
        for (program, args) in programs {
            let spawned = Command::new(program)
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn();
            let Ok(mut child) = spawned else { continue };
            child.stdin.take().unwrap().write_all(&sample()).unwrap();
            let out = child.wait_with_output().unwrap();
            let names: Vec<_> = out
                .stdout
                .split(|b| *b == b'\n')
                .filter(|l| !l.is_empty())
                .collect();
            assert_eq!(
                names,
                [&b"bin"[..], b"proc", b"usr", b"usr/bin", b"usr/bin/tool"]
            );
            return;
        }
        // Neither is there: the guests that boot from such archives are the
        // second reader.
    }
}
