//! What the end-to-end tests share: the built tools, how they are run, guests
//! that record, and a reading of what comes out that does not go through the
//! code under test.

pub mod check;
pub mod clock;
pub mod machine;
pub mod played;
pub mod results;
pub mod scenario;
pub mod tools;
pub mod truth;
