//! What processes use, as the kernel counts it.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// What one process used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// CPU time in user and in system mode, s.
    pub(crate) user: f64,
    pub(crate) system: f64,
    /// Most memory at a time, bytes.
    pub(crate) rss: u64,
}

impl Used {
    /// CPU time, s.
    pub(crate) fn cpu(&self) -> f64 {
        self.user + self.system
    }
}

/// What a pipeline used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// Of each process, in the order of the pipe.
    pub(crate) used: Vec<Used>,
    /// From start to end, s.
    pub(crate) wall: f64,
}

impl Run {
    /// CPU time of all, s.
    pub(crate) fn cpu(&self) -> f64 {
        self.used.iter().map(Used::cpu).sum()
    }

    /// Most memory of each, added up, bytes.
    pub(crate) fn rss(&self) -> u64 {
        self.used.iter().map(|used| used.rss).sum()
    }
}

/// The run of middling CPU time.
pub(crate) fn median(mut runs: Vec<Run>) -> Result<Run> {
    runs.sort_by(|a, b| a.cpu().total_cmp(&b.cpu()));
    let middle = runs.len() / 2;
    runs.into_iter().nth(middle).context("no run")
}

/// Runs programs joined by pipes; the last writes to a file.
///
/// # Errors
/// When one cannot be started or fails.
pub(crate) fn pipeline(programs: &[Vec<String>], output: &Path) -> Result<Run> {
    let begin = Instant::now();
    let mut children: Vec<(String, Child)> = Vec::new();
    for (place, words) in programs.iter().enumerate() {
        let (program, arguments) = words.split_first().context("no program")?;
        let before = children
            .last_mut()
            .and_then(|(_, child)| child.stdout.take());
        let child = Command::new(program)
            .args(arguments)
            .stdin(before.map_or_else(Stdio::null, Stdio::from))
            .stdout(match place + 1 == programs.len() {
                true => Stdio::from(File::create(output)?),
                false => Stdio::piped(),
            })
            .spawn()
            .with_context(|| program.clone())?;
        children.push((program.clone(), child));
    }
    let used = children
        .iter()
        .map(|(name, child)| wait(name, child))
        .collect::<Result<_>>()?;
    Ok(Run {
        used,
        wall: begin.elapsed().as_secs_f64(),
    })
}

/// Waits for the end of a process.
fn wait(name: &str, child: &Child) -> Result<Used> {
    let (mut status, pid) = (0, child.id() as libc::pid_t);
    // SAFETY: the structure is of numbers only, for which 0 is a value.
    #[expect(unsafe_code, reason = "a structure of C")]
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values that live until it returns.
    #[expect(
        unsafe_code,
        reason = "the standard library does not tell what a process used"
    )]
    let ended = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    if ended != pid {
        return Err(std::io::Error::last_os_error()).context("wait4");
    }
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        bail!("{name} failed");
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Used {
        user: seconds(usage.ru_utime),
        system: seconds(usage.ru_stime),
        rss: usage.ru_maxrss as u64 * 1024,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_pipe_is_measured_process_by_process() {
        let folder = tempfile::tempdir().expect("folder");
        let output = folder.path().join("out");
        let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done";
        let run = pipeline(&[words(&["sh", "-c", spin]), words(&["cat"])], &output).expect("run");
        assert_eq!(std::fs::read_to_string(&output).expect("output"), "done\n");
        assert_eq!(run.used.len(), 2);
        assert!(
            run.used[0].user > 10.0 * run.used[1].user.max(1e-3),
            "{run:?}"
        );
        assert!(
            run.used
                .iter()
                .all(|used| (100_000..1 << 30).contains(&used.rss)),
            "{run:?}"
        );
        assert!(pipeline(&[words(&["false"])], &output).is_err());
    }
}
