//! Other versions of containerd than the one that Debian 12 has, for `cargo xtask test --runtimes all`.
//!
//! They come from later releases of Debian; runc stays the installed one.

use std::path::PathBuf;

use anyhow::Result;

use crate::debian::{self, Release};
use crate::shell::target;

/// The releases of Debian whose containerd is tested besides the installed one: 1.7 and 2.x.
pub(crate) const SUITES: [&str; 2] = ["trixie", "sid"];

/// The directory with the programs of a release's containerd, fetched if it is not there yet.
pub(crate) fn programs(suite: &str) -> Result<PathBuf> {
    let kept = target().join("containerd").join(suite);
    let programs = kept.join("usr/bin");
    if !programs.join("containerd").is_file() {
        debian::keep(&kept, |work, unpacked| {
            Release::fetch(suite, work)?.unpack(&["containerd".to_owned()], unpacked)
        })?;
    }
    Ok(programs)
}
