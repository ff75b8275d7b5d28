//! Reports to read: rows in, text, Markdown, CSV or JSON out.
//!
//! Nothing is computed here: every figure comes from a row and is only
//! written down ([`units`]). [`content`] says what a report says, as a
//! [`document`]; [`text`] and [`markdown`] give it its look.

pub mod cli;
pub mod content;
pub mod document;
pub mod live;
pub mod markdown;
pub mod model;
pub mod text;
pub mod units;
