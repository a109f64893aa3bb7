//! Packages of other releases of Debian than the installed one, from the mirror that this machine uses, with package
//! lists of their own: nothing is installed, and nothing that is installed changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::shell::{in_root, run};

const MIRROR: &str = "http://deb.debian.org/debian";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A release of Debian, with a directory for its lists and packages.
pub(crate) struct Release<'a> {
    directory: &'a Path,
}

impl<'a> Release<'a> {
    /// Fetches the lists of `suite`, such as `trixie` or `bullseye-security`, into an empty `directory`.
    pub(crate) fn fetch(suite: &str, directory: &'a Path) -> Result<Self> {
        for needed in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(needed)).with_context(|| format!("making {needed}"))?;
        }
        let mut mirror = configured_mirror().unwrap_or_else(|| MIRROR.to_owned());
        if suite.ends_with("-security") {
            mirror.push_str("-security");
        }
        let source = format!("deb [signed-by={KEYS}] {mirror} {suite} main\n");
        fs::write(directory.join("sources.list"), source).context("writing sources.list")?;
        let release = Self { directory };
        run(release.apt("apt-get").args(["-q", "update"]))?;
        Ok(release)
    }

    /// The packages that one depends on, by name.
    pub(crate) fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let output =
            self.apt("apt-cache").args(["depends", package]).output().context("starting apt-cache")?;
        if !output.status.success() {
            bail!("there is no package {package}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned).collect())
    }

    /// Downloads packages and unpacks them into one directory.
    pub(crate) fn unpack(&self, packages: &[String], into: &Path) -> Result<()> {
        run(self.apt("apt-get").args(["-q", "download"]).args(packages))?;
        for file in fs::read_dir(self.directory).context("reading the download directory")? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                run(in_root("dpkg").arg("-x").arg(&path).arg(into))?;
            }
        }
        Ok(())
    }

    /// One of apt's programs, with these lists only.
    fn apt(&self, program: &str) -> Command {
        let mut apt = in_root(program);
        apt.current_dir(self.directory);
        let option = |name: &str, file: &str| format!("{name}={}", self.directory.join(file).display());
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
    }
}

/// Makes `kept` with what `fill` puts into a directory beside it, so that what fails half-way is not taken for the
/// whole. `fill` is also given a directory to work in.
pub(crate) fn keep(kept: &Path, fill: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<()> {
    let parent = kept.parent().context("the place has a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
    let work = tempfile::tempdir_in(parent).context("making a directory for packages")?;
    let unpacked: PathBuf = work.path().join("unpacked");
    fs::create_dir(&unpacked).context("making a directory for what is in the packages")?;
    fill(work.path(), &unpacked)?;
    fs::rename(&unpacked, kept).with_context(|| format!("moving {} to its place", unpacked.display()))
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
