//! The built tools as people call them: files and pipes, no root, no guest.

#[path = "tools/bad_input.rs"]
mod bad_input;
#[path = "tools/cases.rs"]
mod cases;
#[path = "tools/completions.rs"]
mod completions;
#[path = "tools/damage.rs"]
mod damage;
#[path = "tools/manpages.rs"]
mod manpages;
