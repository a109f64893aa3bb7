//! Which pod and container a cgroup path names (rules D.1 to D.3). Pure; any thread.
//!
//! A path is read from the left, below the cgroup root, and the first component with the form of a pod counts, be its
//! UID known or not: what a container makes below itself can never name another pod (rule D.3.2). Nor can what users make
//! in `user.slice`. Input is untrusted: one pass, no allocation, nothing beyond [`MAX_PATH_BYTES`].

use crate::pod::PodUid;
use std::fmt;

/// The longest input that is read: PATH_MAX. The kernel makes no longer path visible.
pub const MAX_PATH_BYTES: usize = 4096;

/// What runtimes write before a container's ID (rules D.2.2 to D.2.4); the rest of a scope's name is the ID.
const CONTAINER_PREFIXES: [&str; 4] = ["cri-containerd-", "crio-", "docker-", "libpod-"];
/// CRI-O's monitor of a container, no container itself (rule D.2.3).
const MONITOR_PREFIX: &str = "crio-conmon-";
/// The ends of names that systemd gives to what is no container.
const UNIT_SUFFIXES: [&str; 5] = [".slice", ".scope", ".service", ".mount", ".socket"];
/// The slice in which systemd delegates cgroups to users, who name what they make there as they like.
const USERS: &str = "user.slice";
/// The component above all pods.
const PODS: &str = "kubepods";
const BURSTABLE: &str = "burstable";
const BEST_EFFORT: &str = "besteffort";

/// The directory below which pods are looked for, as a list of components: `--cgroup-root`.
///
/// The default is the whole hierarchy. A node that runs inside a pod of another cluster needs one, so that the outer
/// pod is not taken for its own; and so does one that a user runs, in `user.slice`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupRoot(Vec<String>);

impl CgroupRoot {
    /// Reads a path below the cgroup mount, e.g. `/kubelet` or `/kubelet.slice`.
    #[must_use]
    pub fn new(path: &str) -> Self {
        Self(components(path).map(str::to_owned).collect())
    }

    /// Whether this is the whole hierarchy.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether pods lie directly below: the kubelet's `kubepods` is the root itself.
    fn is_pods(&self) -> bool {
        self.0.last().is_some_and(|last| last == PODS)
    }
}

impl fmt::Display for CgroupRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.join("/"))
    }
}

/// The QoS class of a pod as its cgroup's place says it (rule D.3.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QosClass {
    /// Directly below `kubepods`.
    Guaranteed,
    /// Below `burstable`.
    Burstable,
    /// Below `besteffort`.
    BestEffort,
}

/// A pod's UID as its cgroup's name spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UidText<'a> {
    /// The UID itself: the cgroupfs form (CG-1: nothing is unescaped).
    Verbatim(&'a str),
    /// The systemd form: each `-` of the UID is written `_`.
    Escaped(&'a str),
}

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPath<'a> {
    /// The pod.
    pub uid: UidText<'a>,
    /// Its QoS class; `None` where the components that would tell are outside our cgroup namespace.
    pub qos: Option<QosClass>,
    /// The container's or sandbox's ID (rule D.2.6: the form is the same); `None` for the pod's own cgroup and for a
    /// monitor.
    pub container: Option<&'a str>,
    /// How many components lie below the container's, or below the pod's where there is no container.
    pub depth: usize,
}

impl<'a> PodPath<'a> {
    /// Reads a path below the cgroup mount, or a line of /proc/PID/cgroup (rule D.3.1). `None` where it names no pod.
    #[must_use]
    pub fn parse(input: &'a str, root: &CgroupRoot) -> Option<Self> {
        Self::scan(input, root).filter(|(_, is_of_user)| !is_of_user).map(|(pod, _)| pod)
    }

    /// Whether a path has the form of a pod's but lies in a slice of users below the root, so that it may be anybody's.
    pub(super) fn is_of_user(input: &str, root: &CgroupRoot) -> bool {
        PodPath::scan(input, root).is_some_and(|(_, is_of_user)| is_of_user)
    }

    /// What a path has the form of, and whether it lies in a slice of users.
    fn scan(input: &'a str, root: &CgroupRoot) -> Option<(Self, bool)> {
        if input.len() > MAX_PATH_BYTES {
            return None;
        }
        let path = ProcLine::parse(input).map_or(input, |line| line.path);
        let path = path.trim_end_matches(['\n', '\r']);
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let mut parts = components(path).peekable();
        let mut is_cut_off = false;
        while parts.next_if(|part| *part == "..").is_some() {
            is_cut_off = true;
        }
        if is_cut_off && !root.is_whole() {
            // Whether this lies below the root cannot be seen from our cgroup namespace.
            return None;
        }
        for wanted in &root.0 {
            parts.next_if(|part| part == wanted)?;
        }
        let mut place =
            Place { is_below_pods: root.is_pods(), is_of_user: false, is_cut_off, index: 0, before: "" };
        while let Some(part) = parts.next() {
            if let Some((uid, qos, tail)) = place.pod(part) {
                let container = match tail {
                    Some(id) => Some(id),
                    None => parts.peek().copied().and_then(container_of),
                };
                let below = parts.count();
                let is_own_component = container.is_some() && tail.is_none();
                let depth = below - usize::from(is_own_component);
                return Some((Self { uid, qos, container, depth }, place.is_of_user));
            }
            place.pass(part);
        }
        None
    }
}

/// Where the scan stands.
struct Place<'a> {
    is_below_pods: bool,
    is_of_user: bool,
    is_cut_off: bool,
    index: usize,
    before: &'a str,
}

impl<'a> Place<'a> {
    fn pass(&mut self, part: &'a str) {
        self.is_below_pods |= part == PODS;
        self.is_of_user |= part == USERS;
        self.index += 1;
        self.before = part;
    }

    /// The pod that a component names; with the container's ID where it is part of the same name.
    fn pod<'p>(&self, part: &'p str) -> Option<(UidText<'p>, Option<QosClass>, Option<&'p str>)> {
        if let Some((slice, id)) = split_literal(part) {
            let (uid, qos) = systemd_pod(slice)?;
            return Some((uid, Some(qos), Some(id)));
        }
        if part.ends_with(".slice") {
            let (uid, qos) = systemd_pod(part)?;
            return Some((uid, Some(qos), None));
        }
        let uid = part.strip_prefix("pod").filter(|uid| !uid.is_empty())?;
        let qos = match self.before {
            BURSTABLE => QosClass::Burstable,
            BEST_EFFORT => QosClass::BestEffort,
            _ => QosClass::Guaranteed,
        };
        if self.is_below_pods {
            return Some((UidText::Verbatim(uid), Some(qos), None));
        }
        // Seen from inside a sibling pod's cgroup namespace the components above are only `..`. Then a pod stands at
        // the very front, or behind its QoS class; and as nothing else vouches for it, the UID must look like one.
        let is_front = self.index == 0 || (self.index == 1 && qos != QosClass::Guaranteed);
        let is_sibling = self.is_cut_off && is_front && is_uid(uid);
        is_sibling.then_some((UidText::Verbatim(uid), (self.index > 0).then_some(qos), None))
    }
}

impl UidText<'_> {
    /// The UID, where the text can be nothing else: a dashed UUID or 32 hexadecimal digits (rules D.3.5, D.3.6).
    #[must_use]
    pub fn certain(&self) -> Option<PodUid> {
        match self {
            Self::Verbatim(text) => is_uid(text).then(|| (*text).into()),
            Self::Escaped(text) => {
                let uid = text.replace('_', "-");
                is_uid(&uid).then(|| uid.into())
            }
        }
    }

    /// Whether the pod `uid` has this text in its cgroup's name.
    #[must_use]
    pub fn names(&self, uid: &str) -> bool {
        match self {
            Self::Verbatim(text) => *text == uid,
            Self::Escaped(text) => {
                let escaped = uid.bytes().map(|byte| if byte == b'-' { b'_' } else { byte });
                escaped.eq(text.bytes())
            }
        }
    }
}

/// One line of /proc/PID/cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcLine<'a> {
    /// `0` for cgroup2.
    pub(super) hierarchy: u32,
    /// Comma-separated; empty for cgroup2.
    pub(super) controllers: &'a str,
    pub(super) path: &'a str,
}

impl<'a> ProcLine<'a> {
    /// `None` where the text is a plain path: a path may hold colons too (rule D.2.5).
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (hierarchy, rest) = text.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let hierarchy = hierarchy.parse().ok()?;
        path.starts_with('/').then_some(Self { hierarchy, controllers, path })
    }
}

/// Whether pods lie, or may come to lie, below a path that names none itself: it holds a `kubepods` of either form, below
/// the root, or is the way to a root that was given.
pub(super) fn leads_to_pods(path: &str, root: &CgroupRoot) -> bool {
    let is_pods = |part: &str| {
        part == PODS
            || part.strip_suffix(".slice").is_some_and(|name| name.split('-').any(|part| part == PODS))
    };
    let mut parts = components(path);
    for wanted in &root.0 {
        match parts.next() {
            Some(part) if part == wanted => {}
            other => return other.is_none(),
        }
    }
    let mut below = parts.peekable();
    let is_root = !root.is_whole() && below.peek().is_none();
    is_root || root.is_pods() || below.any(is_pods)
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

/// Splits `SLICE:RUNTIME:ID`, which runc makes of a slice parent under the cgroupfs driver (rule D.3.4a).
fn split_literal(part: &str) -> Option<(&str, &str)> {
    let (slice, rest) = part.split_once(':')?;
    let (runtime, id) = rest.split_once(':')?;
    let is_known = CONTAINER_PREFIXES.iter().any(|prefix| prefix.strip_suffix('-') == Some(runtime));
    (is_known && is_container_id(id)).then_some((slice, id))
}

/// Rule D.3.3: `...kubepods...-pod<uid>.slice`.
fn systemd_pod(name: &str) -> Option<(UidText<'_>, QosClass)> {
    let (above, last) = name.strip_suffix(".slice")?.rsplit_once('-')?;
    let uid = last.strip_prefix("pod").filter(|uid| !uid.is_empty())?;
    if !above.split('-').any(|part| part == PODS) {
        return None;
    }
    let qos = match above.rsplit('-').next() {
        Some(BURSTABLE) => QosClass::Burstable,
        Some(BEST_EFFORT) => QosClass::BestEffort,
        _ => QosClass::Guaranteed,
    };
    Some((UidText::Escaped(uid), qos))
}

/// Rule D.3.8: the container that the component after the pod's names.
fn container_of(part: &str) -> Option<&str> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    if name.starts_with(MONITOR_PREFIX) {
        return None;
    }
    let id = CONTAINER_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    match id {
        Some(id) => is_container_id(id).then_some(id),
        // Without a prefix the name is the ID as a whole, and a systemd unit has none (rule D.2.7: the parent is known,
        // so that the ID may be any).
        None if UNIT_SUFFIXES.iter().any(|suffix| part.ends_with(suffix)) => None,
        None => is_container_id(name).then_some(name),
    }
}

/// What may be a container's ID: runtimes take letters, digits, `_`, `.` and `-`, and ours are ASCII.
fn is_container_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !text.is_empty() && text.len() <= 255 && text.bytes().all(is_allowed)
}

/// Rule D.3.5: a dashed UUID (8-4-4-4-12), or 32 hexadecimal digits as of a manifest's hash.
fn is_uid(text: &str) -> bool {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let bytes = text.as_bytes();
    match bytes.len() {
        32 => bytes.iter().all(u8::is_ascii_hexdigit),
        36 => bytes.iter().enumerate().all(|(index, byte)| {
            if DASHES.contains(&index) { *byte == b'-' } else { byte.is_ascii_hexdigit() }
        }),
        _ => false,
    }
}

#[cfg(test)]
#[path = "cgroup_path_tests.rs"]
mod tests;
