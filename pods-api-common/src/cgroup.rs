//! Entries of the maps that outlive an event: which pod a cgroup is of, and which cgroup a process is in.

use core::mem::size_of;

/// Version of [`CgroupEntry`]. A field may be added at the end without a new version: readers go by the map's value
/// size. A change of what is there gets a new one.
pub const ENTRY_VERSION: u32 = 1;

/// Set in [`CgroupEntry::flags`] once `namespace` and `name` are known: the UID is in the path of the cgroup and so
/// known at once, the name comes with the pod.
pub const FLAG_NAMED: u32 = 1 << 0;
/// Set in [`CgroupEntry::flags`] if the cgroup is that of a container, so that `container_id` is set.
pub const FLAG_CONTAINER: u32 = 1 << 1;

/// What the map `pods_cgroups` holds for the cgroup of a pod or of a container.
///
/// Texts are UTF-8 and end with a NUL; all bytes after it are NUL.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CgroupEntry {
    /// [`ENTRY_VERSION`]
    pub version: u32,
    /// `FLAG_*`
    pub flags: u32,
    /// UID of the pod, as in its metadata.
    pub pod_uid: [u8; 64],
    /// ID of the container without the runtime's scheme; empty in the entry of a pod.
    pub container_id: [u8; 72],
    /// Namespace of the pod; empty until [`FLAG_NAMED`].
    pub namespace: [u8; 64],
    /// Name of the pod; empty until [`FLAG_NAMED`].
    pub name: [u8; 256],
}

/// The name of the field whose text does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryTooLong(pub &'static str);

impl CgroupEntry {
    /// Makes an entry; `flags` follow from what is given.
    ///
    /// # Errors
    /// When a text does not fit with its NUL, or holds one. Kubernetes' own limits leave room for all.
    pub fn new(
        pod_uid: &str,
        container_id: Option<&str>,
        name: Option<(&str, &str)>,
    ) -> Result<Self, EntryTooLong> {
        let (namespace, pod_name) = name.unwrap_or_default();
        let named = if name.is_some() { FLAG_NAMED } else { 0 };
        let container = if container_id.is_some() { FLAG_CONTAINER } else { 0 };
        Ok(Self {
            version: ENTRY_VERSION,
            flags: named | container,
            pod_uid: text(pod_uid, "pod_uid")?,
            container_id: text(container_id.unwrap_or_default(), "container_id")?,
            namespace: text(namespace, "namespace")?,
            name: text(pod_name, "name")?,
        })
    }
}

impl core::fmt::Debug for CgroupEntry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CgroupEntry")
            .field("version", &self.version)
            .field("flags", &self.flags)
            .field("pod_uid", &until_nul(&self.pod_uid))
            .field("container_id", &until_nul(&self.container_id))
            .field("namespace", &until_nul(&self.namespace))
            .field("name", &until_nul(&self.name))
            .finish()
    }
}

/// The text of a field; empty if it is none.
fn until_nul(field: &[u8]) -> &str {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    core::str::from_utf8(&field[..end]).unwrap_or_default()
}

fn text<const N: usize>(value: &str, field: &'static str) -> Result<[u8; N], EntryTooLong> {
    let mut bytes = [0; N];
    // Strictly less: the NUL must fit too.
    if value.len() >= N || value.contains('\0') {
        return Err(EntryTooLong(field));
    }
    bytes[..value.len()].copy_from_slice(value.as_bytes());
    Ok(bytes)
}

/// What the map `pods_processes` holds for a process, by thread group ID.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessEntry {
    /// The cgroup it was last seen in.
    pub cgroup_id: u64,
}

// No padding: the size is that of the fields.
const _: () = assert!(size_of::<CgroupEntry>() == 4 + 4 + 64 + 72 + 64 + 256);
const _: () = assert!(size_of::<ProcessEntry>() == 8);

#[cfg(feature = "user")]
#[allow(unsafe_code, reason = "a marker of plain types, which nothing but `unsafe impl` can set")]
mod plain {
    use super::{CgroupEntry, ProcessEntry};

    // SAFETY: `repr(C)`, `Copy`, without padding (asserted above), and every bit pattern is a value: its fields
    // are integers and arrays of bytes.
    unsafe impl aya::Pod for CgroupEntry {}

    // SAFETY: `repr(C)`, `Copy`, one integer.
    unsafe impl aya::Pod for ProcessEntry {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_is_known() {
        let flags = |container, name| CgroupEntry::new("uid", container, name).unwrap().flags;
        assert_eq!(flags(None, None), 0);
        assert_eq!(flags(Some("abc"), None), FLAG_CONTAINER);
        assert_eq!(flags(Some("abc"), Some(("ns", "pod"))), FLAG_CONTAINER | FLAG_NAMED);
    }

    #[test]
    fn longest_names_of_kubernetes_fit_with_their_nul() {
        let entry = CgroupEntry::new(
            core::str::from_utf8(&[b'u'; 63]).unwrap(),
            Some(core::str::from_utf8(&[b'c'; 64]).unwrap()),
            Some((core::str::from_utf8(&[b'n'; 63]).unwrap(), core::str::from_utf8(&[b'p'; 253]).unwrap())),
        )
        .unwrap();
        for (field, length) in
            [(&entry.pod_uid[..], 63), (&entry.container_id, 64), (&entry.namespace, 63), (&entry.name, 253)]
        {
            assert_eq!(until_nul(field).len(), length);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let long = core::str::from_utf8(&[b'x'; 64]).unwrap();
        assert_eq!(CgroupEntry::new(long, None, None), Err(EntryTooLong("pod_uid")));
        assert_eq!(CgroupEntry::new("uid", None, Some((long, "pod"))), Err(EntryTooLong("namespace")));
        assert_eq!(CgroupEntry::new("a\0b", None, None), Err(EntryTooLong("pod_uid")));
    }
}
