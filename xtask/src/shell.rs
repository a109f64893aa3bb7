//! Paths of the work tree, and child processes whose failure names the command that failed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context as _, Result, bail};

/// The root of the work tree.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace's root")
}

/// The cargo target directory in use.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Cargo, as it was called, in the root of the work tree.
pub(crate) fn cargo() -> Command {
    in_root(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Cargo for a build that has the kernel programs in it: without them, tests of theirs would be tests of nothing.
pub(crate) fn testing_cargo() -> Command {
    const CHOICE: &str = "PODS_API_BUILD_EBPF";
    let mut cargo = cargo();
    if std::env::var_os(CHOICE).is_none() {
        cargo.env(CHOICE, "require");
    }
    cargo
}

/// A command in the root of the work tree.
pub(crate) fn in_root(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Tells the user what happens now, on stderr.
pub(crate) fn say(message: impl std::fmt::Display) {
    eprintln!("xtask: {message}");
}

/// Shows a command, runs it and returns how it ended.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    say(format_args!("$ {}", line(command)));
    command.status().with_context(|| format!("starting `{}`", line(command)))
}

/// Shows a command and runs it; an unsuccessful end is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed: {status}", line(command));
    }
    Ok(())
}

/// Whether a command can be started and succeeds; what it prints is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Whether a program is on the PATH or among cargo's own.
pub(crate) fn has_program(name: &str) -> bool {
    let cargo_bin = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
        .map(|home| home.join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(cargo_bin).any(|dir| dir.join(name).is_file())
}

/// The exit code for a child's status; a death by signal counts as a failure.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    match status.code().map(u8::try_from) {
        Some(Ok(code)) => ExitCode::from(code),
        _ => ExitCode::FAILURE,
    }
}

fn line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    // Cargo's absolute path says nothing to a reader.
    if let Some(name) = Path::new(&line).file_name().filter(|_| line.contains("/toolchains/")) {
        line = name.to_string_lossy().into_owned();
    }
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}
