//! What the end-to-end tests share: the built tools, how they are run, and a
//! reading of their output that does not go through the code under test.

pub mod tools;
pub mod truth;
