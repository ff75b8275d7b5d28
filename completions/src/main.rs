//! Writes what shells complete after the tools' names: `ntp-completions FOLDER`.
//!
//! A program of the build: the tools' own definitions of their options are
//! asked here, so that the tools need not carry the scripts' templates.

use anyhow::{Context, Result, bail};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::fs::{self, File};
use std::path::Path;

/// Shells, where they look below `share`, and the name of a tool's file there.
type Place = (Shell, &'static str, fn(&str) -> String);
const PLACES: [Place; 3] = [
    (Shell::Bash, "bash-completion/completions", str::to_owned),
    (Shell::Zsh, "zsh/site-functions", |tool| format!("_{tool}")),
    (Shell::Fish, "fish/vendor_completions.d", |tool| {
        format!("{tool}.fish")
    }),
];

fn tools() -> [(&'static str, Command); 5] {
    [
        ("ntp-probe", ntp_probe::Options::command()),
        (ntp_capture::TOOL, ntp_capture::Options::command()),
        (ntp_join::cli::TOOL, ntp_join::cli::Args::command()),
        (ntp_stages::cli::TOOL, ntp_stages::cli::Args::command()),
        (ntp_fmt::cli::TOOL, ntp_fmt::cli::Args::command()),
    ]
}

/// A command without what its help does not show: some templates would.
fn shown(tool: &'static str, command: &Command) -> Command {
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    Command::new(tool).version("").args(args)
}

fn write(folder: &Path) -> Result<()> {
    for (shell, place, name) in PLACES {
        let place = folder.join(place);
        fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
        for (tool, command) in tools() {
            let path = place.join(name(tool));
            let mut file = File::create(&path).with_context(|| path.display().to_string())?;
            clap_complete::generate(shell, &mut shown(tool, &command), tool, &mut file);
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    match (args.next(), args.next()) {
        (Some(folder), None) => write(Path::new(&folder)),
        _ => bail!("usage: ntp-completions FOLDER"),
    }
}
