//! A guest's console: what the kernel complains of there means that the guest,
//! and what was measured in it, is lost.

use std::fs;
use std::path::PathBuf;

/// Marks of a kernel in trouble.
const MARKS: &[&str] = &[
    "Kernel panic",
    "Oops",
    "BUG:",
    "kernel BUG at",
    "general protection fault",
    "rcu stall",
    "self-detected stall",
    "detected stalls on CPUs",
    "soft lockup",
    "hung task",
    "blocked for more than",
];

/// The console's file.
#[derive(Debug, Clone)]
pub(crate) struct Console {
    pub(crate) path: PathBuf,
    /// Its size when it was last found clean.
    seen: u64,
}

impl Console {
    pub(crate) fn new(path: PathBuf) -> Console {
        Console { path, seen: 0 }
    }

    /// The first line that tells of trouble, if the file has grown since it
    /// was last looked at.
    pub(crate) fn trouble(&mut self) -> Option<String> {
        let size = fs::metadata(&self.path).ok()?.len();
        if size == self.seen {
            return None;
        }
        let found = self.problems().into_iter().next();
        if found.is_none() {
            self.seen = size;
        }
        found
    }

    /// Every line that tells of trouble.
    pub(crate) fn problems(&self) -> Vec<String> {
        let text = fs::read(&self.path).unwrap_or_default();
        problems(&String::from_utf8_lossy(&text))
    }

    /// The last line, for a guest that ended without a word.
    pub(crate) fn last_line(&self) -> String {
        let text = fs::read(&self.path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines()
            .map(str::trim)
            .rfind(|l| !l.is_empty())
            .unwrap_or_default()
            .to_owned()
    }
}

fn problems(text: &str) -> Vec<String> {
    text.lines()
        .filter(|l| MARKS.iter().any(|m| l.contains(m)))
        .map(|l| l.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_and_plain_lines_are_not() {
        let text = "[    1.0] BUG: kernel NULL pointer dereference\r\n\
                    [    1.1] Kernel panic - not syncing: Fatal exception\n\
                    [    2.0] rcu: INFO: rcu_preempt self-detected stall on CPU\n\
                    [    3.0] INFO: task fio:99 blocked for more than 120 seconds.\n\
                    [    4.0] nvme nvme0: creating 2 I/O queues.\n";
        assert_eq!(problems(text).len(), 4);
        assert!(problems("debugfs: BUGS are elsewhere\n").is_empty());
    }
}
