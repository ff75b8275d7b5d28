//! fio's own account of a run.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// Latencies and number of I/Os of a fio run, all jobs together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fio {
    /// I/Os completed.
    pub ios: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Synchronising calls (fsync): flushes of a block device.
    pub syncs: u64,
    /// Mean of the completion latency (after the submitting call returned), us.
    pub clat_us: f64,
    /// Mean of the whole latency, us.
    pub lat_us: f64,
}

impl Fio {
    /// The account in one line.
    pub fn summary(&self) -> String {
        format!(
            "fio's own figures (us): {} I/Os, lat mean {:.2}, of which after submission (clat) {:.2}",
            self.ios, self.lat_us, self.clat_us
        )
    }

    /// Reads fio's JSON.
    ///
    /// # Errors
    /// The file cannot be read or is not what fio writes.
    pub fn read(path: &Path) -> Result<Fio> {
        let text = std::fs::read(path).with_context(|| path.display().to_string())?;
        let json: Value = serde_json::from_slice(&text).context("fio.json")?;
        let (mut ios, mut bytes, mut syncs, mut clat, mut lat) = (0, 0, 0, 0.0, 0.0);
        for job in json["jobs"].as_array().context("jobs")? {
            syncs += job["sync"]["total_ios"].as_u64().unwrap_or(0);
            for direction in ["read", "write", "trim"] {
                let side = &job[direction];
                let n = side["total_ios"].as_u64().unwrap_or(0);
                ios += n;
                if direction != "trim" {
                    bytes += side["io_bytes"].as_u64().unwrap_or(0);
                }
                clat += n as f64 * side["clat_ns"]["mean"].as_f64().unwrap_or(0.0) / 1e3;
                lat += n as f64 * side["lat_ns"]["mean"].as_f64().unwrap_or(0.0) / 1e3;
            }
        }
        let n = (ios as f64).max(1.0);
        Ok(Fio {
            ios,
            bytes,
            syncs,
            clat_us: clat / n,
            lat_us: lat / n,
        })
    }
}
