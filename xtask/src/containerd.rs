//! Other versions of containerd than the one that Debian 12 has, for `cargo xtask test --runtimes all`.
//!
//! They come from later releases of Debian, from the mirror that this machine uses, with package lists of their own:
//! nothing is installed, and nothing that is installed changes. runc stays the installed one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell::{in_root, run, target};

/// The releases of Debian whose containerd is tested besides the installed one: 1.7 and 2.x.
pub(crate) const SUITES: [&str; 2] = ["trixie", "sid"];

const MIRROR: &str = "http://deb.debian.org/debian";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The directory with the programs of a release's containerd, fetched if it is not there yet.
pub(crate) fn programs(suite: &str) -> Result<PathBuf> {
    let kept = target().join("containerd").join(suite);
    let programs = kept.join("usr/bin");
    if programs.join("containerd").is_file() {
        return Ok(programs);
    }
    let parent = target().join("containerd");
    fs::create_dir_all(&parent).with_context(|| format!("making {}", parent.display()))?;
    // Beside its place, so that the last step is one rename, and what fails half-way is not taken for the whole.
    let work = tempfile::tempdir_in(&parent).context("making a directory for packages")?;
    let package = download(suite, work.path())?;
    let unpacked = work.path().join("unpacked");
    run(in_root("dpkg").arg("-x").arg(package).arg(&unpacked))?;
    fs::rename(&unpacked, &kept).with_context(|| format!("moving {} to its place", unpacked.display()))?;
    Ok(programs)
}

/// Downloads the package of one release, without a trace in the system's own lists.
fn download(suite: &str, directory: &Path) -> Result<PathBuf> {
    for needed in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(directory.join(needed)).with_context(|| format!("making {needed}"))?;
    }
    let mirror = configured_mirror().unwrap_or_else(|| MIRROR.to_owned());
    let source = format!("deb [signed-by={KEYS}] {mirror} {suite} main\n");
    fs::write(directory.join("sources.list"), source).context("writing sources.list")?;
    let apt_get = || {
        let mut apt = in_root("apt-get");
        apt.current_dir(directory).arg("-q");
        let option = |name: &str, file: &str| format!("{name}={}", directory.join(file).display());
        for option in [
            option("Dir::Etc::sourcelist", "sources.list"),
            option("Dir::State::lists", "lists"),
            option("Dir::Cache", "cache"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            "Dir::State::status=/dev/null".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            // The download lands in a directory that belongs to whoever runs this.
            "APT::Sandbox::User=".to_owned(),
        ] {
            apt.arg("-o").arg(option);
        }
        apt
    };
    run(apt_get().arg("update"))?;
    run(apt_get().args(["download", "containerd"]))?;
    let files = fs::read_dir(directory).context("reading the download directory")?;
    let packages = files.filter_map(|file| Some(file.ok()?.path()));
    packages
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .max()
        .context("apt-get downloaded no package")
}

/// Where this machine gets Debian's packages from.
fn configured_mirror() -> Option<String> {
    let format = "$(COMPONENT) $(REPO_URI)";
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", format, "Created-By: Packages", "Origin: Debian"])
        .output()
        .ok()?;
    let targets = String::from_utf8(output.stdout).ok()?;
    let mirrors = targets.lines().filter_map(|line| line.strip_prefix("main "));
    // Security updates have a place of their own, which has no whole release.
    mirrors
        .filter(|mirror| !mirror.contains("security"))
        .map(|mirror| mirror.trim_end_matches('/').to_owned())
        .next()
}
