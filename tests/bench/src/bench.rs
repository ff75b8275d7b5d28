//! The benchmark: generate, run both sides, compare, print.

use crate::compare::compare;
use crate::load;
use crate::measure::{Run, median, pipeline};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// What to run.
pub(crate) struct Bench {
    /// Folder of the tools.
    pub(crate) tools: PathBuf,
    /// Folder for recordings and tables.
    pub(crate) folder: PathBuf,
    /// Commands in the recordings, one run for each.
    pub(crate) commands: Vec<u64>,
    /// Runs of each, of which the middle one counts.
    pub(crate) repeat: usize,
    /// Python with DuckDB, and the script for it.
    pub(crate) peer: Option<(String, String)>,
}

/// Ways of the peer to a quantile.
const QUANTILES: [&str; 2] = ["exact", "approximate"];

/// Runs it and prints a table.
///
/// # Errors
/// When a process fails, or the two sides do not agree.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    for commands in &bench.commands {
        let folder = bench.folder.join(commands.to_string());
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        load::generate(*commands, &folder)?;
        println!("{commands} commands:");
        ours(bench, *commands, &folder)?;
        if bench.peer.is_some() {
            peer(bench, *commands, &folder)?;
        }
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// Words of a command line.
fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

fn ours(bench: &Bench, commands: u64, folder: &Path) -> Result<()> {
    let tool = |name: &str| bench.tools.join(name).display().to_string();
    let input = |name: &str| folder.join(name).display().to_string();
    let join = vec![tool("ntp-join"), input("host.ntp"), input("target.ntp")];
    let stages = vec![tool("ntp-stages")];
    let whole = [join.clone(), stages.clone(), vec![tool("ntp-fmt")]];
    let runs = (0..bench.repeat).map(|_| pipeline(&whole, &folder.join("report.txt")));
    let run = median(runs.collect::<Result<_>>()?)?;
    let names = ["ntp-join", "ntp-stages", "ntp-fmt"];
    for (name, used) in names.iter().zip(&run.used) {
        row(
            name,
            commands,
            &Run {
                used: vec![*used],
                wall: run.wall,
            },
        );
    }
    row("all three", commands, &run);
    // The rows, to compare with.
    pipeline(&[join, stages], &folder.join("rows.ndjson"))?;
    Ok(())
}

fn peer(bench: &Bench, commands: u64, folder: &Path) -> Result<()> {
    let Some((python, script)) = &bench.peer else {
        return Ok(());
    };
    let path = |name: &str| folder.join(name).display().to_string();
    let own = std::env::current_exe()?.display().to_string();
    for side in ["host", "target"] {
        let csv = words([own.as_str(), "csv", &path(&format!("{side}.ntp"))]);
        let load = words([
            python.as_str(),
            script,
            "load",
            &path(&format!("{side}.parquet")),
        ]);
        pipeline(&[csv, load], &folder.join("load.txt"))?;
    }
    let rows = fs::read_to_string(folder.join("rows.ndjson"))?;
    for quantiles in QUANTILES {
        let report = words([
            python.as_str(),
            script,
            "report",
            &folder.display().to_string(),
            quantiles,
        ]);
        let output = folder.join("peer.ndjson");
        let runs = (0..bench.repeat).map(|_| pipeline(std::slice::from_ref(&report), &output));
        let run = median(runs.collect::<Result<_>>()?)?;
        row(&format!("DuckDB, {quantiles}"), commands, &run);
        let means = compare(&rows, &fs::read_to_string(&output)?)?;
        println!("  {means} counts and means are those of ntp-stages");
    }
    Ok(())
}

fn row(name: &str, commands: u64, run: &Run) {
    let (cpu, wall) = (run.cpu(), run.wall);
    let (user, system) = run.used.iter().fold((0.0, 0.0), |(user, system), used| {
        (user + used.user, system + used.system)
    });
    println!(
        "  {name:<20} {:>7.0} ns of CPU a command ({user:.2} s user, {system:.2} s system), {wall:.2} s, {:>6.1} MB",
        cpu * 1e9 / commands as f64,
        run.rss() as f64 / 1e6
    );
}
