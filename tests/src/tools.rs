//! The built tools and how a test runs them.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Folder of the built tools. Cargo is asked once, in the profile of this test:
/// a file that happens to lie there may be an older one.
pub fn bin_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let exe = std::env::current_exe().expect("path of the test");
        let dir = exe.ancestors().nth(2).expect("target folder").to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--workspace", "--bins"]);
        cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        if dir.file_name() == Some(OsStr::new("release")) {
            cargo.arg("--release");
        }
        let status = cargo.status().expect("cargo");
        assert!(status.success(), "the tools could not be built");
        dir
    })
}

/// What a run of a tool gave.
#[derive(Debug)]
pub struct Run {
    /// Command line, for messages.
    pub command: String,
    /// Exit status; -1 when a signal ended it.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    fn new(command: String, output: Output) -> Self {
        Run {
            command,
            status: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Fails the test unless the status is this one.
    #[track_caller]
    pub fn expect(self, status: i32) -> Self {
        assert_eq!(
            self.status,
            status,
            "\n  command: {}\n  stdout: {} bytes: {}\n  stderr:\n{}",
            self.command,
            self.stdout.len(),
            self.text().chars().take(600).collect::<String>(),
            self.stderr
        );
        self
    }
}

/// Runs a tool with arguments, nothing on standard input.
pub fn run<S: AsRef<OsStr>>(tool: &str, args: &[S]) -> Run {
    run_with(tool, args, None)
}

/// Runs a tool with arguments and standard input.
pub fn run_with<S: AsRef<OsStr>>(tool: &str, args: &[S], input: Option<&[u8]>) -> Run {
    let mut command = Command::new(bin_dir().join(tool));
    command
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.stdin(if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    let line = format!("{command:?}");
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{line}: {e}"));
    let feeder = input.map(|bytes| {
        let bytes = bytes.to_vec();
        let mut stdin = child.stdin.take().expect("standard input");
        // A tool that ends before it has read all is not an error here.
        std::thread::spawn(move || drop(stdin.write_all(&bytes)))
    });
    let output = child
        .wait_with_output()
        .unwrap_or_else(|e| panic!("{line}: {e}"));
    if let Some(feeder) = feeder {
        feeder.join().expect("feeder");
    }
    Run::new(line, output)
}

/// Runs a shell pipeline with the tools first on PATH, in a folder.
pub fn shell(dir: &Path, script: &str) -> Run {
    let path = format!(
        "{}:{}",
        bin_dir().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", script])
        .current_dir(dir)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .expect("bash");
    Run::new(script.to_owned(), output)
}
