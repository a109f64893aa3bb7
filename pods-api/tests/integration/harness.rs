//! The server as a child process in a temporary directory of its own, and waiting without sleeping blindly.
//! Dropping a [`Server`] ends the process and removes the directory, also when the test fails; then the server's log
//! is shown too.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) use crate::runtime::node::{PATIENCE, eventually, root, succeed};

/// The binary under test.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pods-api"));
    // The environment twins of the flags must not reach a test from outside.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PODS_API_") {
            command.env_remove(name);
        }
    }
    command
}

/// For a test that cannot run on this machine: CI must not pass without it, elsewhere it is skipped aloud.
pub(crate) fn cannot_run(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "cannot run: {why}; cargo xtask setup --for test");
    eprintln!("skipped: {why}; cargo xtask setup --for test");
}

/// A directory, its manifests and the arguments, before the server runs.
pub(crate) struct Setup {
    directory: TempDir,
    arguments: Vec<String>,
    /// A command that runs the server, and its arguments.
    wrapper: Vec<String>,
}

impl Setup {
    /// An empty manifest directory and the default arguments.
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("pods-api-test-").tempdir().unwrap();
        fs::create_dir(directory.path().join("manifests")).unwrap();
        Self { directory, arguments: Vec::new(), wrapper: Vec::new() }
    }

    /// Adds the example manifests.
    pub(crate) fn examples(self) -> Self {
        for entry in fs::read_dir(root().join("examples/manifests")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), self.directory.path().join("manifests").join(entry.file_name())).unwrap();
        }
        self
    }

    /// Adds one manifest.
    pub(crate) fn manifest(self, file: &str, text: &str) -> Self {
        fs::write(self.directory.path().join("manifests").join(file), text).unwrap();
        self
    }

    /// Puts a device where manifests should be: a source that never delivers.
    pub(crate) fn device_as_manifests(self) -> Self {
        fs::remove_dir(self.directory.path().join("manifests")).unwrap();
        std::os::unix::fs::symlink("/dev/null", self.directory.path().join("manifests")).unwrap();
        self
    }

    /// Adds an argument of `serve`.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Has the server run by another command, which must end it when it is ended itself.
    pub(crate) fn within(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|part| (*part).to_owned()).collect();
        self
    }

    /// Starts the server without waiting for anything.
    pub(crate) fn spawn(self) -> Server {
        let path = self.directory.path();
        let log = path.join("server.log");
        let mut server = binary();
        if let [wrapper, arguments @ ..] = &self.wrapper[..] {
            let program = server.get_program().to_owned();
            // Without the environment twins of the flags, as [`binary`] has it.
            let removed: Vec<_> = server.get_envs().map(|(name, _)| name.to_owned()).collect();
            server = Command::new(wrapper);
            server.args(arguments).arg(program);
            for name in removed {
                server.env_remove(name);
            }
        }
        let child = server
            .args(["serve", "--node-name", "node-1", "--admin", "127.0.0.1:0"])
            // Whatever runs on this machine is not the test's, unless it says so.
            .env("PODS_API_CRI_SOCKET", "none")
            .env("PODS_API_EBPF", "off")
            .arg("--socket")
            .arg(path.join("socket/pods-api.sock"))
            .arg("--manifests")
            .arg(path.join("manifests"))
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(log).unwrap())
            .spawn()
            .unwrap();
        Server { child, directory: self.directory }
    }

    /// Starts the server and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(self) -> Server {
        let mut server = self.spawn();
        eventually("the server to be ready", PATIENCE, || {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("the server ended: {status}");
            }
            server.admin().and_then(|_| (server.http("/readyz").0 == 200).then_some(()))
        });
        server
    }
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    directory: TempDir,
}

impl Server {
    /// The server's process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket/pods-api.sock")
    }

    /// The directory it reads manifests from.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.directory.path().join("manifests")
    }

    /// Replaces a manifest in one step, as editors do.
    pub(crate) fn write_manifest(&self, file: &str, text: &str) {
        let temporary = self.manifests().join(format!(".{file}.new"));
        fs::write(&temporary, text).unwrap();
        fs::rename(temporary, self.manifests().join(file)).unwrap();
    }

    /// Removes a manifest.
    pub(crate) fn remove_manifest(&self, file: &str) {
        fs::remove_file(self.manifests().join(file)).unwrap();
    }

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("server.log")).unwrap_or_default()
    }

    /// The admin listener's address, once it is logged.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        let log = self.log();
        let (_, after) = log.lines().find(|line| line.contains("serving"))?.split_once("admin=")?;
        after.split_whitespace().next()?.parse().ok()
    }

    /// GETs a path of the admin listener: the status code and the body.
    pub(crate) fn http(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.admin().expect("the admin address is logged")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").expect("a response has a head");
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a response has a code");
        (code, body.to_owned())
    }

    /// Runs a client command on this server's socket to its end.
    pub(crate) fn client(&self, arguments: &[&str]) -> Output {
        self.client_command(arguments).output().unwrap()
    }

    /// A client command on this server's socket.
    pub(crate) fn client_command(&self, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.args(arguments).arg("--socket").arg(self.socket()).stdin(Stdio::null());
        command
    }

    /// Runs a client command on this server's admin listener to its end.
    pub(crate) fn client_of_admin(&self, arguments: &[&str]) -> Output {
        let admin = self.admin().expect("the admin address is logged").to_string();
        binary().args(arguments).args(["--admin", &admin]).stdin(Stdio::null()).output().unwrap()
    }

    /// Waits until the server has ended by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        eventually("the server to end", PATIENCE, || self.child.try_wait().unwrap())
    }

    /// Asks the server to end and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
        // Fails only for a child that has ended and been waited for, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
