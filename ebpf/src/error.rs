//! Why programs could not be loaded or attached.

use crate::btf::BtfError;
use crate::hooks::Hook;
use crate::plan::Attach;
use std::io;

/// Why programs could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// An option the programs cannot take.
    #[error("{0}")]
    Option(String),
    /// The plan has problems.
    #[error("{0}")]
    Plan(String),
    /// Type information.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The object does not fit this kernel.
    #[error("{object}: {what}")]
    Object {
        /// Object.
        object: &'static str,
        /// What the parser or the relocation said.
        what: String,
    },
    /// A map could not be made.
    #[error("map {map}: {what}")]
    Map {
        /// Map.
        map: String,
        /// What the system said.
        what: String,
    },
    /// Maps are charged to the limit of locked memory (kernels before 5.11), and
    /// this process may not raise it.
    #[error(
        "locked memory: {limit} bytes are not enough: give it cap_sys_resource with setcap, \
         or raise the limit (ulimit -l unlimited)"
    )]
    Memlock {
        /// The limit, bytes.
        limit: u64,
    },
    /// The kernel refused a program.
    #[error("program {program} for {function}: {cause}{}", last_words(.log))]
    Program {
        /// Program.
        program: String,
        /// Function or tracepoint it was for.
        function: String,
        /// What the system said.
        cause: io::Error,
        /// Verifier log, possibly empty.
        log: String,
    },
    /// A program could not be attached.
    #[error("attach {program} to {function}: {what}")]
    Attach {
        /// Program.
        program: String,
        /// Function or tracepoint.
        function: String,
        /// What the system said.
        what: String,
    },
}

impl LoadError {
    pub(crate) fn attach(hook: &Hook, at: &Attach, why: &io::Error) -> Self {
        LoadError::Attach {
            program: hook.program(at.how),
            function: at.site.name.to_owned(),
            what: why.to_string(),
        }
    }

    /// Whether somebody with more rights would not meet it.
    pub fn is_permission(&self) -> bool {
        matches!(self, LoadError::Memlock { .. })
    }

    /// The verifier's log, when a program was refused by it.
    pub fn log(&self) -> Option<&str> {
        match self {
            LoadError::Program { log, .. } if !log.is_empty() => Some(log),
            _ => None,
        }
    }
}

/// The verifier's reason: its last line before the statistics.
fn last_words(log: &str) -> String {
    let line = log.lines().rev().find(|l| {
        let l = l.trim();
        !l.is_empty()
            && ![
                "processed ",
                "verification time",
                "stack depth",
                "max_states",
            ]
            .iter()
            .any(|s| l.starts_with(s))
    });
    match line.map(str::trim) {
        None => String::new(),
        // What relocation puts where a field has no counterpart (0xbad2310).
        Some(l) if l.contains("195896080") => {
            ": it reads a field that this kernel's BTF does not have".into()
        }
        Some(l) => format!(": {l}"),
    }
}

/// An error and its causes in one line: aya's say little without them.
pub(crate) fn chain(e: &dyn std::error::Error) -> String {
    let mut out = e.to_string();
    let mut source = e.source();
    while let Some(e) = source {
        let text = e.to_string();
        // A transparent error repeats its cause.
        if !out.ends_with(&text) {
            out += &format!(": {text}");
        }
        source = e.source();
    }
    out
}
