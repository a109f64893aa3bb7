use super::*;
use crate::testing::cannot_run;
use crate::transport::testing::{Helper, helper_directory, wait_for_the_test};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use tempfile::TempDir;

const THIS: &str = "transport::listener::tests";

fn config(directory: &TempDir) -> ListenerConfig {
    ListenerConfig::new(directory.path().join("pods-api/pods-api.sock"))
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn inode(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).unwrap().ino()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Connects to `path` and sees that it is `listener` that answers.
fn assert_serves(listener: &Listener, path: &Path) {
    let mut client = UnixStream::connect(path).unwrap();
    let server = rustix::net::accept(listener.socket()).unwrap();
    UnixStream::from(server).write_all(b"x").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "x");
}

#[test]
fn makes_the_directory_and_leaves_nothing_but_it_behind() {
    let root = TempDir::new().unwrap();
    let listener = Listener::bind(config(&root)).unwrap();
    let path = listener.path().to_owned();
    assert_serves(&listener, &path);
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o750));
    assert_eq!(names(path.parent().unwrap()), [".pods-api.sock.lock", "pods-api.sock"]);
    drop(listener);
    assert_eq!(names(path.parent().unwrap()), Vec::<String>::new());
}

// SOCK-3: clients mount the directory.
#[test]
fn an_existing_directory_keeps_its_inode_and_mode_over_restarts() {
    let root = TempDir::new().unwrap();
    let directory = root.path().join("pods-api");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o711)).unwrap();
    let before = inode(&directory);
    for _ in 0..20 {
        let listener = Listener::bind(config(&root)).unwrap();
        assert_serves(&listener, listener.path());
    }
    assert_eq!((inode(&directory), mode(&directory)), (before, 0o711));
}

// SOCK-1
#[test]
fn a_socket_left_by_a_killed_server_is_replaced() {
    let root = TempDir::new().unwrap();
    let mut server = Helper::start(&format!("{THIS}::helper_serves"), root.path());
    server.wait_for("bound");
    let path = config(&root).path;
    std::fs::write(path.with_file_name(".pods-api.sock.new"), "cut off between bind and rename").unwrap();
    server.kill();
    let left = inode(&path);
    assert!(UnixStream::connect(&path).is_err());

    let listener = Listener::bind(config(&root)).unwrap();
    assert_serves(&listener, &path);
    assert_ne!(inode(&path), left);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(names(path.parent().unwrap()), [".pods-api.sock.lock", "pods-api.sock"]);
}

// SOCK-2
#[test]
fn a_second_server_is_refused_and_names_the_first() {
    let root = TempDir::new().unwrap();
    let mut first = Helper::start(&format!("{THIS}::helper_serves"), root.path());
    first.wait_for("bound");
    let path = config(&root).path;
    let before = inode(&path);
    let client = UnixStream::connect(&path).unwrap();

    let error = Listener::bind(config(&root)).unwrap_err();
    let text = error.to_string();
    let BindError::Served { owner, .. } = error else { panic!("{text}") };
    assert_eq!(owner.pid, Some(first.pid()));
    assert_eq!(owner.executable, Some(std::env::current_exe().unwrap()));
    for part in ["another path with --socket", &first.pid().to_string()] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(inode(&path), before);
    assert!(UnixStream::connect(&path).is_ok());
    drop(client);
}

// SOCK-2: a deleted socket does not make the first server's path free.
#[test]
fn a_second_server_is_refused_while_the_first_has_lost_its_socket() {
    let root = TempDir::new().unwrap();
    let mut first = Helper::start(&format!("{THIS}::helper_serves"), root.path());
    first.wait_for("bound");
    std::fs::remove_file(config(&root).path).unwrap();
    let error = Listener::bind(config(&root)).unwrap_err();
    assert!(matches!(error, BindError::Locked { pid, .. } if pid == Some(first.pid())), "{error}");
}

// SOCK-2: such as a kubelet, which knows nothing of our lock.
#[test]
fn a_foreign_live_socket_is_never_unlinked() {
    let root = TempDir::new().unwrap();
    let path = config(&root).path;
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let _foreign = UnixListener::bind(&path).unwrap();
    let before = inode(&path);
    let error = Listener::bind(config(&root)).unwrap_err();
    assert!(
        matches!(&error, BindError::Served { owner, .. } if owner.pid == Some(std::process::id())),
        "{error}"
    );
    assert_eq!(inode(&path), before);
}

// SOCK-2: a server between its bind and its listen refuses connections, and is alive.
#[test]
fn a_socket_that_starts_to_listen_late_is_not_stale() {
    let root = TempDir::new().unwrap();
    let path = config(&root).path;
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    let place = Place::find(&path).unwrap().unwrap();
    let examining = std::thread::spawn(move || examine(&place, Duration::from_secs(2)));
    rustix::net::listen(&socket, 1).unwrap();
    assert!(matches!(examining.join().unwrap().unwrap(), Occupant::Server(_)));
}

#[test]
fn other_files_in_the_way_are_left_alone_and_named() {
    let root = TempDir::new().unwrap();
    let path = config(&root).path;
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let refused = |kind: &str| {
        let before = inode(&path);
        let error = Listener::bind(config(&root)).unwrap_err();
        assert!(error.to_string().contains(kind), "{error}");
        assert_eq!(inode(&path), before);
    };
    std::fs::write(&path, "precious").unwrap();
    refused("a regular file");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    refused("a directory");
    std::fs::remove_dir(&path).unwrap();
    let datagram = UnixDatagram::bind(&path).unwrap();
    refused("a datagram socket");
    drop(datagram);
}

#[test]
fn symbolic_links_to_the_socket_its_directory_or_its_lock_are_not_followed() {
    let root = TempDir::new().unwrap();
    let path = config(&root).path;
    let directory = path.parent().unwrap();
    let elsewhere = root.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, directory).unwrap();
    let error = Listener::bind(config(&root)).unwrap_err();
    assert!(matches!(&error, BindError::Symlink { path } if path == directory), "{error}");
    assert_eq!(names(&elsewhere), Vec::<String>::new());

    std::fs::remove_file(directory).unwrap();
    std::fs::create_dir(directory).unwrap();
    for name in ["pods-api.sock", ".pods-api.sock.lock"] {
        symlink(elsewhere.join("target"), directory.join(name)).unwrap();
        let error = Listener::bind(config(&root)).unwrap_err();
        assert!(matches!(&error, BindError::Symlink { .. }), "{error}");
        assert_eq!(names(&elsewhere), Vec::<String>::new());
        std::fs::remove_file(directory.join(name)).unwrap();
    }
}

#[test]
fn a_link_further_up_is_followed() {
    let root = TempDir::new().unwrap();
    std::fs::create_dir(root.path().join("data")).unwrap();
    symlink(root.path().join("data"), root.path().join("kubelet")).unwrap();
    let path = root.path().join("kubelet/pods-api/pods-api.sock");
    let listener = Listener::bind(ListenerConfig::new(&path)).unwrap();
    assert_serves(&listener, &root.path().join("data/pods-api/pods-api.sock"));
}

#[test]
fn a_path_too_long_for_a_socket_address_is_bound_and_reachable_by_a_shorter_one() {
    let root = TempDir::new().unwrap();
    let directory = root.path().join("d".repeat(200));
    let listener = Listener::bind(ListenerConfig::new(directory.join("pods-api.sock"))).unwrap();
    let shortcut = root.path().join("short");
    symlink(&directory, &shortcut).unwrap();
    assert_serves(&listener, &shortcut.join("pods-api.sock"));
}

#[test]
fn a_file_name_too_long_for_a_socket_address_is_refused_with_the_limit() {
    let root = TempDir::new().unwrap();
    let longest = |length| ListenerConfig::new(root.path().join("n".repeat(length)));
    let listener = Listener::bind(longest(80)).unwrap();
    assert_serves(&listener, listener.path());
    let error = Listener::bind(longest(81)).unwrap_err();
    assert!(matches!(error, BindError::NameTooLong { length: 81, limit: 80, .. }), "{error}");
}

// SOCK-9
#[test]
fn modes_are_exact_whatever_the_umask() {
    for helper in ["helper_binds_with_umask_0", "helper_binds_with_umask_077"] {
        let root = TempDir::new().unwrap();
        Helper::start(&format!("{THIS}::{helper}"), root.path()).passes();
    }
}

// SOCK-9: seen from outside while servers start again and again.
#[test]
fn no_name_is_ever_wider_than_configured() {
    let root = TempDir::new().unwrap();
    let directory = root.path().join("pods-api");
    let mut server = Helper::start(&format!("{THIS}::helper_rebinds_with_umask_0"), root.path());
    let mut seen = 0;
    while seen < 2_000 {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        if let Ok(status) = std::fs::metadata(&directory) {
            assert_eq!(status.permissions().mode() & 0o7777 & !0o750, 0);
        }
        for entry in entries.flatten() {
            let Ok(status) = std::fs::symlink_metadata(entry.path()) else { continue };
            seen += usize::from(status.file_type().is_socket());
            let mode = status.permissions().mode();
            assert_eq!(mode & 0o177, 0, "{:?} has mode {mode:o}", entry.path());
        }
    }
    server.wait_for("rebound");
    server.kill();
}

#[test]
fn the_group_is_that_of_the_socket_and_of_a_directory_made_for_it() {
    let root = TempDir::new().unwrap();
    let own = rustix::process::getgid().as_raw();
    // Without root only groups of one's own can be given away.
    let gid = if rustix::process::geteuid().is_root() { own + 4242 } else { own };
    let group = Some(SocketGroup::Id(gid));
    let listener = Listener::bind(ListenerConfig { mode: 0o660, group, ..config(&root) }).unwrap();
    let group_of = |path: &Path| std::fs::metadata(path).unwrap().gid();
    assert_eq!((mode(listener.path()), group_of(listener.path())), (0o660, gid));
    assert_eq!(group_of(listener.path().parent().unwrap()), gid);
}

// SOCK-5
#[test]
fn a_deleted_socket_is_bound_again() {
    let root = TempDir::new().unwrap();
    let mut listener = Listener::bind(config(&root)).unwrap();
    let path = listener.path().to_owned();
    assert_eq!(listener.check().unwrap(), None);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(listener.check().unwrap(), Some(Rebound::SocketDeleted));
    assert_serves(&listener, &path);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(listener.check().unwrap(), None);
    assert!(matches!(Listener::bind(config(&root)).unwrap_err(), BindError::Served { .. }));
}

// SOCK-5
#[test]
fn a_deleted_directory_is_made_and_bound_again() {
    let root = TempDir::new().unwrap();
    let mut listener = Listener::bind(config(&root)).unwrap();
    let path = listener.path().to_owned();
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert_eq!(listener.check().unwrap(), Some(Rebound::DirectoryReplaced));
    assert_serves(&listener, &path);
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o750));
    drop(listener);
    assert_eq!(names(path.parent().unwrap()), Vec::<String>::new());
}

#[test]
fn a_deleted_lock_is_taken_again_with_the_socket() {
    let root = TempDir::new().unwrap();
    let mut listener = Listener::bind(config(&root)).unwrap();
    let path = listener.path().to_owned();
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(listener.check().unwrap(), Some(Rebound::SocketDeleted));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Listener::bind(config(&root)).unwrap_err(), BindError::Locked { .. }));
}

#[test]
fn another_server_that_took_the_path_is_left_alone_until_it_has_gone() {
    let root = TempDir::new().unwrap();
    let mut listener = Listener::bind(config(&root)).unwrap();
    let path = listener.path().to_owned();
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    let theirs = inode(&path);
    assert!(matches!(listener.check().unwrap_err(), BindError::Served { .. }));
    assert_eq!(inode(&path), theirs);
    drop(other);
    assert_eq!(listener.check().unwrap(), Some(Rebound::SocketReplaced));
    assert_serves(&listener, &path);
}

#[test]
fn only_its_own_socket_is_removed_on_exit() {
    let root = TempDir::new().unwrap();
    let listener = Listener::bind(config(&root)).unwrap();
    let path = listener.path().to_owned();
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(listener);
    assert!(UnixStream::connect(&path).is_ok());
}

// SOCK-6: connecting needs write permission on the socket, whatever else is granted.
#[test]
fn a_socket_without_write_permission_refuses_other_users() {
    if !rustix::process::geteuid().is_root() {
        return cannot_run("only root can become another user");
    }
    let root = TempDir::new().unwrap();
    Helper::start(&format!("{THIS}::helper_connects_as_nobody"), root.path()).passes();
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_serves() {
    let _listener =
        Listener::bind(ListenerConfig::new(helper_directory().join("pods-api/pods-api.sock"))).unwrap();
    println!("bound");
    wait_for_the_test();
}

fn binds_with_umask(umask: u32) {
    rustix::process::umask(Mode::from_raw_mode(umask));
    let directory = helper_directory().join("made/pods-api");
    for bits in [0o600, 0o660, 0o666, 0o400] {
        let path = directory.join(format!("{bits:o}.sock"));
        let listener = Listener::bind(ListenerConfig { mode: bits, ..ListenerConfig::new(&path) }).unwrap();
        assert_eq!(mode(listener.path()), bits);
        assert_eq!(mode(&path.with_file_name(format!(".{bits:o}.sock.lock"))), 0o600);
    }
    assert_eq!((mode(&directory), mode(directory.parent().unwrap())), (0o750, 0o750));
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_binds_with_umask_0() {
    binds_with_umask(0);
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_binds_with_umask_077() {
    binds_with_umask(0o077);
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_rebinds_with_umask_0() {
    rustix::process::umask(Mode::empty());
    let path = helper_directory().join("pods-api/pods-api.sock");
    loop {
        let mut listener = Listener::bind(ListenerConfig::new(&path)).unwrap();
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        listener.check().unwrap().unwrap();
        println!("rebound");
    }
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_connects_as_nobody() {
    let root = helper_directory();
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).unwrap();
    let bind = |bits: u32| {
        let path = root.join(format!("{bits:o}.sock"));
        Listener::bind(ListenerConfig { mode: bits, ..ListenerConfig::new(path) }).unwrap()
    };
    let (readable, writable) = (bind(0o444), bind(0o622));
    let nobody = rustix::process::Uid::from_raw(65534);
    // This thread's identity only: the others keep the right to remove the files.
    rustix::thread::set_thread_res_uid(nobody, nobody, rustix::process::Uid::ROOT).unwrap();
    let refused = UnixStream::connect(readable.path()).unwrap_err();
    let accepted = UnixStream::connect(writable.path());
    rustix::thread::set_thread_res_uid(nobody, rustix::process::Uid::ROOT, rustix::process::Uid::ROOT)
        .unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(accepted.is_ok());
}
