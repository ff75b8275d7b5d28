//! What the tools must show on real kernels: NVMe/TCP recorded in guests under
//! emulation, joined and reported by the built binaries.
//!
//! Many scenarios share a boot. Figures are printed: run with `--nocapture`.
//! `make test` runs the most telling ones; those marked to be ignored are run by
//! `make lab-all`, which also leaves a table.

mod basics;
mod commands;
mod dist;
mod injected;
mod kernels;
mod life;
mod machines;
mod rights;
mod split;

/// The kernels of every test.
const KERNELS: [&str; 2] = ["6.1", "6.12"];

/// Those that only the tests that say so run on.
const OTHERS: [&str; 3] = ["5.10", "6.1-rt", "7.3"];
