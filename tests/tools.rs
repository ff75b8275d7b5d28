//! The built tools as people call them: files and pipes, no root, no guest.

#[path = "tools/manpages.rs"]
mod manpages;
