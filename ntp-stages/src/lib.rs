//! Where each command's time went: stage rules, statistics, Little's law.
//!
//! [`Engine`] takes the items of a stream (one machine's, or joined) and gives
//! the rows of a report. What a stage is stands in one table, [`rules`];
//! [`plan`] turns it into the differences to take for a command.

mod batch;
pub mod cli;
pub mod clocks;
pub mod command;
pub mod directory;
pub mod engine;
pub mod group;
pub mod histogram;
pub mod keys;
pub mod littles_law;
pub mod machines;
pub mod paths;
pub mod plan;
pub mod recordings;
pub mod report;
mod route;
pub mod rules;
pub mod stats;
pub mod table;
mod time;
mod warnings;

pub use engine::{Engine, Options};
pub use keys::By;
