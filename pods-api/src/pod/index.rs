//! Finds UIDs by namespace and name, by pod IP, and by container ID.
//!
//! Persistent ordered sets: a published copy shares all but O(log n) nodes with the next. A set of (key, UID) pairs,
//! because several UIDs may have one name (an old pod still terminates) or one address (host network).

use super::id::{ContainerId, Namespace, PodName, PodUid};
use super::record::Record;
use imbl::{OrdMap, OrdSet};
use std::net::IpAddr;

type NameEntry = (Namespace, PodName, PodUid);
type IpEntry = (IpAddr, PodUid);

/// Whose a container or sandbox is.
type Owner = (PodUid, bool);

/// The indexes over one set of records.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    names: OrdSet<NameEntry>,
    ips: OrdSet<IpEntry>,
    /// The pod of each container and sandbox, and whether it is a sandbox.
    containers: OrdMap<ContainerId, Owner>,
}

impl Index {
    /// Takes in a record; `old` is the record of the same UID that it replaces.
    pub(super) fn replace(&mut self, old: Option<&Record>, new: &Record) {
        match old {
            Some(old) if old.namespace() == new.namespace() && old.name() == new.name() => {}
            old => {
                if let Some(old) = old {
                    self.names.remove(&name_entry(old));
                }
                self.names.insert(name_entry(new));
            }
        }
        let old_ips = old.map_or(&[][..], Record::pod_ips);
        for ip in old_ips.iter().filter(|ip| !new.pod_ips().contains(ip)) {
            self.ips.remove(&(*ip, new.uid().clone()));
        }
        for ip in new.pod_ips().iter().filter(|ip| !old_ips.contains(ip)) {
            self.ips.insert((*ip, new.uid().clone()));
        }
        let old_containers = old.map_or(&[][..], Record::containers);
        for container in old_containers.iter().filter(|container| !new.containers().contains(container)) {
            self.remove_container(&container.id, new.uid());
        }
        for container in new.containers().iter().filter(|container| !old_containers.contains(container)) {
            self.containers.insert(container.id.clone(), (new.uid().clone(), container.is_sandbox));
        }
    }

    /// Forgets a record.
    pub(super) fn remove(&mut self, record: &Record) {
        self.names.remove(&name_entry(record));
        for ip in record.pod_ips() {
            self.ips.remove(&(*ip, record.uid().clone()));
        }
        for container in record.containers() {
            self.remove_container(&container.id, record.uid());
        }
    }

    fn remove_container(&mut self, id: &ContainerId, pod: &PodUid) {
        if self.containers.get(id).is_some_and(|(owner, _)| owner == pod) {
            self.containers.remove(id);
        }
    }

    /// The containers and sandboxes whose ID begins with `prefix`, in order; each with its pod and whether it is a
    /// sandbox.
    pub(super) fn by_container<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a ContainerId, &'a PodUid, bool)> {
        self.containers
            .range(ContainerId::from(prefix)..)
            .take_while(move |(id, _)| id.as_str().starts_with(prefix))
            .map(|(id, (pod, is_sandbox))| (id, pod, *is_sandbox))
    }

    /// The UIDs of that name, in order.
    pub(super) fn by_name<'a>(
        &'a self,
        namespace: &Namespace,
        name: &PodName,
    ) -> impl Iterator<Item = &'a PodUid> {
        let first = (namespace.clone(), name.clone(), PodUid::from(""));
        self.names
            .range(first..)
            .take_while(move |entry| entry.0 == *namespace && entry.1 == *name)
            .map(|(_, _, uid)| uid)
    }

    /// The UIDs with that address, in order.
    pub(super) fn by_ip(&self, ip: IpAddr) -> impl Iterator<Item = &PodUid> {
        self.ips
            .range((ip, PodUid::from(""))..)
            .take_while(move |(address, _)| *address == ip)
            .map(|(_, uid)| uid)
    }
}

fn name_entry(record: &Record) -> NameEntry {
    (record.namespace().clone(), record.name().clone(), record.uid().clone())
}
