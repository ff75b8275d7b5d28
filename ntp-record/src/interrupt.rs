//! Ctrl-C for the tools in the middle of a pipe.
//!
//! A terminal sends the signal to the whole pipeline. The recorder ends its
//! stream; those after it should read that end and print what they have,
//! not die before it.

use nix::sys::signal::{SigSet, Signal};
use std::thread;

/// From here on the first Ctrl-C is left to whoever writes our input; the
/// second one ends this process with status 130. Call before other threads start.
pub fn outlive_the_first() {
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    // A system that refuses leaves things as they are: the first Ctrl-C ends us.
    if set.thread_block().is_err() {
        return;
    }
    let second = move || {
        let _ = set.wait();
        let _ = set.wait();
        std::process::exit(130);
    };
    if thread::Builder::new().spawn(second).is_err() {
        let _ = set.thread_unblock();
    }
}
