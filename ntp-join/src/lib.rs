//! Joins recordings of hosts and of targets, command by command.
//!
//! Which connection a command came over, what it was, and the clocks decide
//! which two records are one command. The clocks need not agree: their
//! difference is estimated from the commands themselves ([`clock`]), from
//! nothing at first ([`vote`]). What could be two things is counted and left
//! out.
//!
//! Memory is bounded by [`Options::window`], whatever the length of the
//! recordings: a record that found its partner leaves at once, one that did
//! not waits [`Options::lag`], less when memory is short.

mod blocks;
pub mod cause;
pub mod cli;
pub mod clock;
mod clocks;
mod counts;
mod emit;
pub mod field;
pub mod hull;
mod intake;
pub mod joiner;
mod leaving;
pub mod limits;
mod matching;
pub mod names;
pub mod pace;
mod report;
pub use report::lines;
pub mod run;
pub mod shelf;
pub mod span;
pub mod store;
pub mod vote;

pub use joiner::{ClockReport, Joiner, Options, Sink};
