//! Embeds the kernel programs: builds `pods-api-ebpf` for the kernel's machine and leaves the object in `OUT_DIR`.
//!
//! `PODS_API_BUILD_EBPF` says how: `auto` (the default) builds them where a tool chain is installed and else leaves
//! an empty file, with which the server says that it was built without; `require` fails instead; a path takes an
//! object made elsewhere. A tool chain is `bpf-linker` and a compiler with `core` for the target: Debian's packages
//! (`cargo xtask setup` installs them) or the nightly of rustup with the component rust-src.

// A build script talks to cargo on stdout.
#![allow(clippy::print_stdout)]

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: &str = "../pods-api-ebpf";
const SOURCES: [&str; 5] = [
    "../pods-api-ebpf/Cargo.lock",
    "../pods-api-ebpf/Cargo.toml",
    "../pods-api-ebpf/src",
    "../pods-api-common/Cargo.toml",
    "../pods-api-common/src",
];
const CHOICE: &str = "PODS_API_BUILD_EBPF";
/// Debian's compiler: called by its path, so that it never stands in the way of the developer's own.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed={CHOICE}");
    println!("cargo::rerun-if-changed=build.rs");
    let object = PathBuf::from(required("OUT_DIR")?).join("pods-api-ebpf.o");
    match env::var(CHOICE).as_deref().unwrap_or("auto") {
        choice @ ("auto" | "require" | "") => match Toolchain::find() {
            Ok(toolchain) => {
                for source in SOURCES {
                    println!("cargo::rerun-if-changed={source}");
                }
                // A tool chain that is there has to work: a broken program is an error, not a missing feature.
                strip(&toolchain.build()?, &object)?;
            }
            Err(missing) if choice == "require" => {
                return Err(
                    format!("{CHOICE}=require, but {missing}; `cargo xtask setup` installs it").into()
                );
            }
            Err(_) => {
                // Looked at again once something is installed there.
                if let Some(home) = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(default_cargo_home) {
                    println!("cargo::rerun-if-changed={}", home.join("bin").display());
                }
                fs::write(&object, [])?;
            }
        },
        path => {
            println!("cargo::rerun-if-changed={path}");
            fs::copy(path, &object).map_err(|error| format!("{CHOICE}={path}: {error}"))?;
        }
    }
    Ok(())
}

fn required(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("cargo sets {name} for build scripts"))
}

fn default_cargo_home() -> Option<PathBuf> {
    env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")).filter(|home| home.is_dir())
}

/// The target of the kernel's machine: its byte order is the host's.
fn target() -> Result<&'static str, String> {
    let is_big = required("CARGO_CFG_TARGET_ENDIAN")? == "big";
    Ok(if is_big { "bpfeb-unknown-none" } else { "bpfel-unknown-none" })
}

/// Compilers that can build for the kernel's machine.
enum Toolchain {
    /// Debian's `rustc-web` with its `core` for the target.
    Debian,
    /// `rustup run nightly`, which builds `core` from its sources.
    Nightly,
}

impl Toolchain {
    /// Finds an installed one, or says what is missing.
    fn find() -> Result<Self, String> {
        if !answers(Command::new("bpf-linker").arg("--version")) {
            return Err("bpf-linker is not installed".into());
        }
        let core = Path::new("/usr/lib/rustlib").join(target()?);
        if [DEBIAN_RUSTC, DEBIAN_CARGO].iter().all(|path| Path::new(path).is_file()) && core.is_dir() {
            return Ok(Self::Debian);
        }
        let sysroot = Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]).output();
        let sysroot = sysroot.ok().filter(|output| output.status.success());
        let sources = |output: std::process::Output| {
            let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            Path::new(&path).join("lib/rustlib/src/rust/library").is_dir()
        };
        if sysroot.is_some_and(sources) {
            return Ok(Self::Nightly);
        }
        Err("there is neither Debian's compiler for BPF nor a nightly with rust-src".into())
    }

    /// Builds the programs and returns the object.
    fn build(&self) -> Result<PathBuf, Box<dyn Error>> {
        let directory = shared_directory(Path::new(&required("OUT_DIR")?));
        let mut build = match self {
            Self::Debian => {
                let mut cargo = Command::new(DEBIAN_CARGO);
                // aya-ebpf uses inline assembly for its target, which is not stable yet.
                cargo.arg("build").env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "aya_ebpf");
                cargo
            }
            Self::Nightly => {
                let mut cargo = Command::new("rustup");
                cargo.args(["run", "nightly", "cargo", "build", "-Z", "build-std=core"]).env_remove("RUSTC");
                cargo
            }
        };
        // What this build was told about its own compiler, wrapper and flags is not meant for that one.
        for name in [
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTC_WRAPPER",
            "RUSTUP_TOOLCHAIN",
            "RUSTFLAGS",
            "CARGO_BUILD_TARGET",
        ] {
            build.env_remove(name);
        }
        let architecture = required("CARGO_CFG_TARGET_ARCH")?;
        // Debug information is what BTF is made of.
        let flags = [
            format!("--cfg=bpf_target_arch=\"{architecture}\""),
            "-Cdebuginfo=2".to_owned(),
            "-Clink-arg=--btf".to_owned(),
        ];
        build
            .current_dir(PROGRAMS)
            .args(["--release", "--locked", "--target", target()?, "--target-dir"])
            .arg(&directory)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        let output = build.output().map_err(|error| format!("{:?}: {error}", build.get_program()))?;
        if !output.status.success() {
            return Err(format!(
                "the kernel programs do not build:\n{}",
                String::from_utf8_lossy(&output.stderr)
            )
            .into());
        }
        Ok(directory.join(target()?).join("release/pods-api-ebpf"))
    }
}

/// Where all profiles and features of this package build the programs: they are the same, and so are built once.
/// `OUT_DIR` is `TARGET/PROFILE/build/PACKAGE-HASH/out`.
fn shared_directory(out: &Path) -> PathBuf {
    out.ancestors().nth(4).unwrap_or(out).join("ebpf")
}

/// Copies the object without what debuggers want, nine tenths of it, where LLVM's tools are at hand. BTF stays.
fn strip(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let debian = ["22", "21", "20", "19"].map(|version| format!("/usr/lib/llvm-{version}/bin/llvm-objcopy"));
    let tool = debian.into_iter().find(|path| Path::new(path).is_file()).unwrap_or("llvm-objcopy".into());
    let stripped = answers(Command::new(tool).arg("--strip-debug").args([from.as_os_str(), to.as_os_str()]));
    if !stripped {
        fs::copy(from, to)?;
    }
    Ok(())
}

fn answers(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
