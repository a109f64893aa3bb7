//! What each command needs of the machine, and how it gets there: Debian packages as root, everything else (cargo
//! tools, Python and Node.js packages) into the user's own directories. A machine that has it all is left alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

use crate::shell::{cargo, has_program, in_root, root, run, say, succeeds, target};

/// The arguments of `cargo xtask setup`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The command to prepare for.
    #[arg(long = "for", value_enum, default_value_t = Scope::Test)]
    scope: Scope,
}

/// The command whose requirements are to be met.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    Run,
    Test,
    /// `check --lints`: without cargo-deny.
    Lints,
    Check,
    Bench,
    /// `bench` as root, which runs containers.
    Containers,
    Fuzz,
    Vm,
}

struct Requirement {
    /// What it is, for the one line printed when it is missing.
    what: &'static str,
    scopes: &'static [Scope],
    is_present: fn() -> bool,
    remedy: Remedy,
}

enum Remedy {
    /// Packages of Debian 12; installing them needs root.
    Debian(&'static [&'static str]),
    /// A cargo subcommand, pinned so that a later release cannot break a checkout of today.
    Cargo(&'static str, &'static str),
    /// A component of the Rust toolchain.
    Component(&'static str),
    /// Anything else, without root.
    Other(fn() -> Result<()>),
}

const REQUIREMENTS: &[Requirement] = &[
    Requirement {
        what: "Python 3 with venv, for the Python client tests",
        scopes: &[Scope::Test],
        is_present: || succeeds(Command::new("python3").args(["-c", "import venv, ensurepip"])),
        remedy: Remedy::Debian(&["python3", "python3-venv"]),
    },
    Requirement {
        what: "valgrind, which counts instructions",
        scopes: &[Scope::Test],
        is_present: || has_program("valgrind"),
        remedy: Remedy::Debian(&["valgrind"]),
    },
    Requirement {
        what: "Node.js with npm, for the Node.js client tests",
        scopes: &[Scope::Test],
        is_present: || has_program("node") && has_program("npm"),
        remedy: Remedy::Debian(&["nodejs", "npm"]),
    },
    Requirement {
        what: "Go with grpc-go, for the Go client tests",
        scopes: &[Scope::Test],
        is_present: || {
            has_program("go") && Path::new("/usr/share/gocode/src/google.golang.org/grpc").is_dir()
        },
        remedy: Remedy::Debian(&["golang-go", "golang-google-grpc-dev"]),
    },
    Requirement {
        what: "containerd and what it needs, to run containers",
        scopes: &[Scope::Test, Scope::Containers],
        is_present: || {
            ["containerd", "ctr", "runc", "ip"].iter().all(|program| has_program(program))
                && ["/usr/lib/cni/bridge", "/bin/busybox"].iter().all(|path| Path::new(path).exists())
        },
        remedy: Remedy::Debian(&[
            "containerd",
            "runc",
            "containernetworking-plugins",
            "iproute2",
            "iptables",
            "busybox-static",
        ]),
    },
    Requirement {
        what: "protoc, for the schema tests",
        scopes: &[Scope::Test],
        is_present: || {
            has_program("protoc") && Path::new("/usr/include/google/protobuf/duration.proto").is_file()
        },
        remedy: Remedy::Debian(&["protobuf-compiler", "libprotobuf-dev"]),
    },
    Requirement {
        what: "a compiler for BPF and LLVM's headers, for the kernel programs",
        scopes: &[Scope::Test, Scope::Bench, Scope::Vm],
        is_present: || {
            Path::new("/usr/bin/cargo").is_file()
                && Path::new("/usr/lib/rustlib/bpfel-unknown-none").is_dir()
                && Path::new("/usr/lib/llvm-22/include").is_dir()
        },
        remedy: Remedy::Debian(&["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf", "llvm-22-dev"]),
    },
    Requirement {
        what: "bpf-linker, which links the kernel programs",
        scopes: &[Scope::Test, Scope::Bench, Scope::Vm],
        is_present: || has_program("bpf-linker"),
        remedy: Remedy::Other(install_bpf_linker),
    },
    Requirement {
        what: "bpftool, which shows the kernel programs' maps",
        scopes: &[Scope::Test],
        is_present: || has_program("bpftool") || Path::new("/usr/sbin/bpftool").is_file(),
        remedy: Remedy::Debian(&["bpftool"]),
    },
    Requirement {
        what: "QEMU and busybox, for other kernels",
        scopes: &[Scope::Test, Scope::Vm],
        is_present: || has_program("qemu-system-x86_64") && Path::new("/bin/busybox").is_file(),
        remedy: Remedy::Debian(&["qemu-system-x86", "busybox-static"]),
    },
    Requirement {
        what: "cargo-nextest, the test runner",
        scopes: &[Scope::Test],
        is_present: || has_program("cargo-nextest"),
        remedy: Remedy::Cargo("cargo-nextest", "0.9.143"),
    },
    Requirement {
        what: "rustfmt",
        scopes: &[Scope::Lints, Scope::Check],
        is_present: || succeeds(cargo().args(["fmt", "--version"])),
        remedy: Remedy::Component("rustfmt"),
    },
    Requirement {
        what: "clippy",
        scopes: &[Scope::Lints, Scope::Check],
        is_present: || succeeds(cargo().args(["clippy", "--version"])),
        remedy: Remedy::Component("clippy"),
    },
    Requirement {
        what: "cargo-deny",
        scopes: &[Scope::Check],
        is_present: || has_program("cargo-deny"),
        remedy: Remedy::Cargo("cargo-deny", "0.20.2"),
    },
    Requirement {
        what: "cargo-fuzz",
        scopes: &[Scope::Fuzz],
        is_present: || has_program("cargo-fuzz"),
        remedy: Remedy::Cargo("cargo-fuzz", "0.13.2"),
    },
    Requirement {
        what: "perf, which counts system calls",
        scopes: &[Scope::Bench],
        is_present: || succeeds(Command::new("perf").arg("--version")),
        remedy: Remedy::Debian(&["linux-perf"]),
    },
    Requirement {
        what: "the Python gRPC packages",
        scopes: &[Scope::Test],
        is_present: || is_current(&python_requirements(), &python_stamp()),
        remedy: Remedy::Other(install_python_packages),
    },
    Requirement {
        what: "the Node.js gRPC packages",
        scopes: &[Scope::Test],
        is_present: || is_current(&node_lock(), &node_stamp()),
        remedy: Remedy::Other(install_node_packages),
    },
];

/// Runs `cargo xtask setup`.
pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode> {
    ensure(arguments.scope)?;
    say("everything needed is installed");
    Ok(ExitCode::SUCCESS)
}

/// Installs what `scope` needs and this machine lacks.
pub(crate) fn ensure(scope: Scope) -> Result<()> {
    let needed = REQUIREMENTS.iter().filter(|requirement| requirement.scopes.contains(&scope));
    // Debian's packages first, all in one go: the other remedies are programs out of them.
    let (debian, others): (Vec<_>, Vec<_>) =
        needed.partition(|requirement| matches!(requirement.remedy, Remedy::Debian(_)));
    install_debian_packages(&missing(&debian))?;
    for requirement in missing(&others) {
        say(format_args!("installing {}", requirement.what));
        match requirement.remedy {
            Remedy::Debian(_) => {}
            Remedy::Cargo(package, version) => {
                run(cargo().args(["install", "--locked", package, "--version", version]))?;
            }
            Remedy::Component(name) => run(in_root("rustup").args(["component", "add", name]))?,
            Remedy::Other(install) => install()?,
        }
        if !(requirement.is_present)() {
            bail!("{} is still missing after its installation", requirement.what);
        }
    }
    Ok(())
}

fn missing<'a>(requirements: &[&'a Requirement]) -> Vec<&'a Requirement> {
    requirements.iter().copied().filter(|requirement| !(requirement.is_present)()).collect()
}

fn install_debian_packages(missing: &[&Requirement]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages = Vec::new();
    for requirement in missing {
        say(format_args!("missing: {}", requirement.what));
        if let Remedy::Debian(names) = requirement.remedy {
            packages.extend_from_slice(names);
        }
    }
    let list = packages.join(" ");
    if !has_program("apt-get") {
        bail!("this is not a Debian system; install what Debian calls: {list}");
    }
    if !rustix::process::geteuid().is_root() {
        bail!("not root, so nothing was installed; run: sudo apt-get install --no-install-recommends {list}");
    }
    // The package lists may be absent or name versions that are gone: fetched only when the first try shows so.
    if !succeeds(&mut apt_get(&["install"], &packages)) {
        run(&mut apt_get(&["update"], &[]))?;
        run(&mut apt_get(&["install"], &packages))?;
    }
    for requirement in missing {
        if !(requirement.is_present)() {
            bail!("{} is still missing after its installation", requirement.what);
        }
    }
    Ok(())
}

fn apt_get(action: &[&str], packages: &[&str]) -> Command {
    let mut apt = in_root("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "-y"]).args(action);
    if !packages.is_empty() {
        apt.arg("--no-install-recommends").args(packages);
    }
    apt
}

/// Builds it against Debian's LLVM: its own default would download one.
fn install_bpf_linker() -> Result<()> {
    const LLVM: &str = "/usr/lib/llvm-22";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [PathBuf::from(LLVM).join("bin")].into_iter().chain(std::env::split_paths(&path));
    run(cargo()
        .args(["install", "--locked", "bpf-linker", "--version", "0.13.0"])
        .args(["--no-default-features", "--features", "llvm-22"])
        .env("PATH", std::env::join_paths(path)?)
        .env("LLVM_PREFIX", LLVM)
        .env("LIBRARY_PATH", format!("{LLVM}/lib")))
}

fn install_python_packages() -> Result<()> {
    let environment = target().join("clients/python");
    run(in_root("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    run(in_root(environment.join("bin/python"))
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(python_requirements()))?;
    record(&python_requirements(), &python_stamp())
}

fn install_node_packages() -> Result<()> {
    run(in_root("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(root().join(NODE_CLIENT)))?;
    record(&node_lock(), &node_stamp())
}

const NODE_CLIENT: &str = "pods-api/tests/clients/node";

fn python_requirements() -> PathBuf {
    root().join("pods-api/tests/clients/python/requirements.txt")
}

fn python_stamp() -> PathBuf {
    target().join("clients/python/installed-requirements.txt")
}

fn node_lock() -> PathBuf {
    root().join(NODE_CLIENT).join("package-lock.json")
}

fn node_stamp() -> PathBuf {
    root().join(NODE_CLIENT).join("node_modules/installed-package-lock.json")
}

/// Whether what was last installed (the stamp, a copy of the list) is what the list asks for now.
fn is_current(list: &Path, stamp: &Path) -> bool {
    matches!((fs::read(list), fs::read(stamp)), (Ok(list), Ok(stamp)) if list == stamp)
}

fn record(list: &Path, stamp: &Path) -> Result<()> {
    fs::copy(list, stamp).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(())
}
