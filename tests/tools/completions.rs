//! What is installed for shells knows every option that `--help` tells of,
//! and no other.

use crate::manpages::{TOOLS, help};
use ntp_tests::tools::{bin_dir, run, shell};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The long options of a tool's help, without the dashes.
fn longs(tool: &str) -> BTreeSet<String> {
    let help = help(tool);
    let names = help.keys().flat_map(|names| names.split(", "));
    names
        .filter_map(|name| name.strip_prefix("--"))
        .map(str::to_owned)
        .collect()
}

/// `make install` of these tools and completions, below a folder.
fn install(bin: &Path, completions: &Path, folder: &Path) -> Output {
    let mut make = Command::new("make");
    make.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    make.args(["install", "PREFIX=/usr"]);
    for (name, path) in [
        ("BIN", bin),
        ("COMPLETIONS", completions),
        ("DESTDIR", folder),
    ] {
        make.arg(format!("{name}={}", path.display()));
    }
    make.output().expect("make")
}

#[test]
fn every_shell_completes_the_options_of_the_help() {
    let folder = tempfile::tempdir().expect("folder");
    let completions = folder.path().join("completions");
    run("ntp-completions", &[&completions]).expect(0);
    let made = install(bin_dir(), &completions, folder.path());
    assert!(made.status.success(), "{made:?}");
    let usr = folder.path().join("usr");
    let read = |file: String| {
        let text = fs::read_to_string(usr.join(&file));
        text.unwrap_or_else(|e| panic!("{file}: {e}"))
    };
    for tool in TOOLS {
        assert!(usr.join("bin").join(tool).is_file(), "{tool}");
        assert!(!read(format!("share/man/man1/{tool}.1")).is_empty());
        let options = longs(tool);
        assert!(options.len() > 4, "{tool}: {options:?}");

        let zsh = read(format!("share/zsh/site-functions/_{tool}"));
        assert!(zsh.starts_with(&format!("#compdef {tool}\n")), "{zsh}");
        // Ahead of an option stand its manners: `(--json)`, `*`.
        let specs = zsh.lines().filter_map(|line| line.strip_prefix('\''));
        let heads = specs.filter_map(|spec| spec.split_once('[')?.0.rsplit_once("--"));
        let offered: BTreeSet<String> = heads
            .map(|(_, name)| name.trim_end_matches('=').to_owned())
            .collect();
        assert_eq!(offered, options, "{tool} in zsh");
        let fish = read(format!("share/fish/vendor_completions.d/{tool}.fish"));
        let words = fish.lines().filter_map(|line| line.split_once(" -l "));
        let offered: BTreeSet<String> = words
            .filter_map(|(_, rest)| rest.split_whitespace().next())
            .map(str::to_owned)
            .collect();
        assert_eq!(offered, options, "{tool} in fish");

        // bash is there to be asked.
        let bash = format!("usr/share/bash-completion/completions/{tool}");
        let script = format!(
            "bash -n {bash} && . {bash} && function=$(complete -p {tool} | sed 's/.*-F \\([^ ]*\\).*/\\1/') &&
            COMP_WORDS=({tool} --) COMP_CWORD=1 && $function {tool} -- {tool} && printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let offered = shell(folder.path(), &script).expect(0).text();
        let offered: BTreeSet<String> = (offered.lines())
            .map(|line| line.trim_start_matches("--").to_owned())
            .collect();
        assert_eq!(offered, options, "{tool} in bash");
    }
}

#[test]
fn install_says_what_is_not_built() {
    let folder = tempfile::tempdir().expect("folder");
    let folder = folder.path();
    for (bin, lack) in [
        (folder, "has no tools: run make build"),
        (bin_dir(), "none: run make build"),
    ] {
        let made = install(bin, &folder.join("none"), folder);
        assert_eq!(made.status.code(), Some(2), "{made:?}");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(said.contains(lack), "{said}");
        assert!(!folder.join("usr").exists(), "something was installed");
    }
}
