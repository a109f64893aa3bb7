//! `cargo xtask vm`: the kernel programs on the kernels of four releases of Debian, each in a virtual machine.
//!
//! The machine has no disk and no network: its initial file system is one archive of busybox, the test binary, the
//! server and the libraries they need. It runs the tests of the kernel programs, says how they ended on its serial
//! line, and powers itself off. QEMU interprets the instructions, so no test there may assert a time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

use crate::debian::{self, Release};
use crate::initramfs::Initramfs;
use crate::setup::{self, Scope};
use crate::shell::{run, say, target, testing_cargo};

/// How long a machine may run; it needs a fifth of it.
const PATIENCE: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(100);
/// The tests that run in there: events, losses, pins, and the memory limit of old kernels. Refusals are about what
/// surrounds the server, which is the same for every kernel.
const TESTS: &str =
    "kernel::life:: kernel::storm:: kernel::maps:: kernel::pins::pins_are kernel::refusals::small_memory";
/// What the machine says last, before the exit code of the tests.
const VERDICT: &str = "xtask-vm: tests ended with ";

/// What it says first, before its kernel's release.
const RELEASE: &str = "xtask-vm: Linux ";

/// The arguments of `cargo xtask vm`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The kernels to boot [default: all]
    #[arg(long = "kernel", value_enum)]
    kernels: Vec<Kernel>,
    /// Show all that the machines say.
    #[arg(long)]
    verbose: bool,
}

/// A kernel that a release of Debian has.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kernel {
    /// Debian 11.
    #[value(name = "5.10")]
    V5_10,
    /// Debian 12.
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13.
    #[value(name = "6.12")]
    V6_12,
    /// The newest that is built for Debian 13.
    Newest,
}

impl Kernel {
    const ALL: [Self; 4] = [Self::V5_10, Self::V6_1, Self::V6_12, Self::Newest];

    fn suite(self) -> &'static str {
        match self {
            Self::V5_10 => "bullseye-security",
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
            Self::Newest => "trixie-backports",
        }
    }

    /// The kernel's image, fetched if it is not there yet.
    fn image(self) -> Result<PathBuf> {
        let kept = target().join("vm").join(self.suite());
        if !kept.is_dir() {
            debian::keep(&kept, |work, unpacked| {
                let release = Release::fetch(self.suite(), work)?;
                release.unpack(&kernel_packages(&release)?, unpacked)
            })?;
        }
        find_image(&kept).with_context(|| format!("no kernel in {}", kept.display()))
    }
}

/// Looks for the image: in `/boot`, or in newer packages among the kernel's modules.
fn find_image(directory: &Path) -> Option<PathBuf> {
    let entries: Vec<_> =
        fs::read_dir(directory).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let is_image = |path: &&PathBuf| {
        path.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
    };
    let here = entries.iter().find(is_image).cloned();
    here.or_else(|| entries.iter().filter(|path| path.is_dir()).find_map(|path| find_image(path)))
}

/// The packages with the kernel that the release's metapackage stands for. Newer releases have the image in a
/// package that the named one depends on.
fn kernel_packages(release: &Release<'_>) -> Result<Vec<String>> {
    let is_kernel = |name: &String| {
        let version = name.strip_prefix("linux-image-").or_else(|| name.strip_prefix("linux-binary-"));
        version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut found = Vec::new();
    let mut next = vec!["linux-image-cloud-amd64".to_owned()];
    while let Some(package) = next.pop() {
        let kernels = release.dependencies(&package)?.into_iter().filter(is_kernel);
        next.extend(kernels.filter(|kernel| !found.contains(kernel)));
        if is_kernel(&package) {
            found.push(package);
        }
    }
    Ok(found)
}

/// Runs `cargo xtask vm`.
pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode> {
    let kernels = if arguments.kernels.is_empty() { &Kernel::ALL[..] } else { &arguments.kernels };
    Ok(if check(kernels, arguments.verbose)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the tests on each kernel; true if all have passed.
pub(crate) fn check(kernels: &[Kernel], is_verbose: bool) -> Result<bool> {
    setup::ensure(Scope::Vm)?;
    let work = tempfile::Builder::new().prefix("pods-api-vm-").tempdir().context("making a directory")?;
    let archive = work.path().join("initramfs");
    fs::write(&archive, initial_file_system(work.path())?).context("writing the initial file system")?;
    let mut all_passed = true;
    for kernel in kernels {
        let image = kernel.image()?;
        let started = Instant::now();
        let output = boot(&image, &archive)?;
        let name = output.lines().find_map(|line| line.strip_prefix(RELEASE)).unwrap_or("no Linux");
        let passed = output.lines().any(|line| line.trim_end() == format!("{VERDICT}0"));
        let summary = output.lines().find(|line| line.contains("test result:")).unwrap_or("no result");
        if is_verbose || !passed {
            println!("{output}");
        }
        let mark = if passed { "passed" } else { "FAILED" };
        say(format_args!(
            "Linux {}: {mark} in {:.1} s: {}",
            name.trim(),
            started.elapsed().as_secs_f64(),
            summary.trim()
        ));
        all_passed &= passed;
    }
    Ok(all_passed)
}

/// Boots a kernel and returns what it says until it powers itself off.
fn boot(image: &Path, archive: &Path) -> Result<String> {
    let log = archive.with_file_name("serial.log");
    let mut qemu = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35", "-smp", "2", "-m", "1024"])
        .args(["-display", "none", "-monitor", "none", "-no-reboot", "-nic", "none"])
        .arg("-serial")
        .arg(format!("file:{}", log.display()))
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(archive)
        .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"])
        .stdin(Stdio::null())
        .spawn()
        .context("starting qemu-system-x86_64")?;
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = qemu.try_wait()? {
            break Some(status);
        }
        if Instant::now() > deadline {
            qemu.kill()?;
            qemu.wait()?;
            break None;
        }
        thread::sleep(POLL);
    };
    let output = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    match status {
        Some(status) if status.success() => Ok(output),
        Some(status) => bail!("QEMU ended with {status}:\n{output}"),
        None => bail!("the machine has not powered itself off in {PATIENCE:?}:\n{output}"),
    }
}

/// Builds the tests and packs what the machine needs.
fn initial_file_system(work: &Path) -> Result<Vec<u8>> {
    let test = build_tests()?;
    let server = target().join("debug/pods-api");
    let mut files = Initramfs::new();
    let mut libraries = BTreeSet::new();
    for program in [&test, &server] {
        // Without what debuggers want, which is nine tenths and would have to fit into the machine's memory.
        let stripped = work.join("stripped");
        run(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
        // The tests know the server by the path that it was built at.
        files.file(program, &fs::read(&stripped)?, 0o755);
        libraries.extend(shared_libraries(program)?);
    }
    for library in libraries {
        files.file(
            &library,
            &fs::read(&library).with_context(|| format!("reading {}", library.display()))?,
            0o755,
        );
    }
    files.file(Path::new("/bin/busybox"), &fs::read("/bin/busybox").context("reading busybox")?, 0o755);
    files.file(Path::new("/init"), init_script(&test).as_bytes(), 0o755);
    for directory in ["/proc", "/sys", "/dev", "/tmp", "/etc"] {
        files.directory(Path::new(directory));
    }
    Ok(files.finish())
}

/// The first process of the machine.
fn init_script(test: &Path) -> String {
    format!(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\n\
         export PATH=/bin HOME=/ CI=1 RUST_BACKTRACE=0\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sysfs /sys\n\
         mount -t devtmpfs dev /dev\n\
         mount -t tmpfs tmp /tmp\n\
         mount -t cgroup2 cgroup2 /sys/fs/cgroup\n\
         mount -t securityfs securityfs /sys/kernel/security\n\
         ip link set lo up\n\
         hostname vm\n\
         echo \"{RELEASE}$(uname -r)\"\n\
         {} {TESTS} --test-threads=1\n\
         echo \"{VERDICT}$?\"\n\
         poweroff -f\n",
        test.display()
    )
}

/// Builds the integration tests, and with them the server, and returns the test binary.
fn build_tests() -> Result<PathBuf> {
    let mut build = testing_cargo();
    build.args([
        "test",
        // As `cargo xtask test` builds them, which is then done once.
        "--workspace",
        "--test",
        "integration",
        "--no-run",
        "--message-format",
        "json",
    ]);
    say("building the tests");
    let output = build.stderr(Stdio::inherit()).output().context("starting cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    // One JSON object a line; the one of the test target names its executable.
    const FIELD: &str = "\"executable\":\"";
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().filter(|line| line.contains(FIELD)).find(|line| line.contains("/integration-"));
    let path = line.and_then(|line| line.split_once(FIELD)?.1.split('"').next());
    path.map(PathBuf::from).context("cargo names no executable of the integration tests")
}

/// The shared libraries of a program and its loader.
fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("starting ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}
