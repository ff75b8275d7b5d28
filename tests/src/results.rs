//! The table that a run of the whole matrix leaves.

use std::fs::OpenOptions;
use std::io::Write;

/// What one scenario gave.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Kernel and what was recorded.
    pub scenario: String,
    /// Host records.
    pub commands: usize,
    /// Of these, how many began and ended while both sides recorded.
    pub inside: usize,
    /// Pairs.
    pub matched: usize,
    /// Pairs out of order, and wrong ones.
    pub violations: usize,
    /// What else was measured.
    pub figures: String,
}

/// Adds a line to the file that NTP_LAB_RESULTS names, if it names one.
pub fn add(outcome: Outcome) {
    let share = 100.0 * outcome.matched as f64 / outcome.inside.max(1) as f64;
    line(&format!(
        "| {} | {} | {} of {} ({share:.2} %) | {} | exact | {} |",
        columns(&outcome.scenario),
        outcome.commands,
        outcome.matched,
        outcome.inside,
        outcome.violations,
        outcome.figures
    ));
}

/// Adds what a scenario without a joined recording showed.
pub fn note(scenario: &str, figures: &str) {
    println!("{scenario}: {figures}");
    line(&format!("| {} | | | | | {figures} |", columns(scenario)));
}

/// Adds how a side was recorded: these lines are a table of their own.
pub fn side(kernel: &str, side: &str, figures: &[String]) {
    println!("{kernel}, {side}: {}", figures.join("; "));
    line(&format!("| {kernel} | {side} | {} |", figures.join(" | ")));
}

/// `6.12, reads of 4 KiB` as two columns.
fn columns(scenario: &str) -> String {
    scenario.replacen(", ", " | ", 1)
}

fn line(line: &str) {
    let Some(path) = std::env::var_os("NTP_LAB_RESULTS") else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(path);
    let mut file = file.expect("NTP_LAB_RESULTS");
    writeln!(file, "{line}").expect("NTP_LAB_RESULTS");
}
