//! One measurement of server and client, from its first moment to its last.

use super::{Cost, SyscallCount, Usage};

/// A measurement that has begun.
pub(crate) struct Meter {
    server: Option<(u32, Usage)>,
    client: Usage,
    syscalls: Option<SyscallCount>,
}

/// What server and client used meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    pub(crate) server: Option<Cost>,
    pub(crate) client: Cost,
}

impl Meter {
    /// Begins; `server` is the server's process, if its cost is wanted. Counting system calls slows a server down,
    /// so it is for runs whose times nobody looks at.
    pub(crate) fn start(server: Option<u32>, count_syscalls: bool) -> anyhow::Result<Self> {
        let syscalls = server.filter(|_| count_syscalls).map(SyscallCount::start).transpose()?;
        let server = server.map(|pid| anyhow::Ok((pid, Usage::of(pid)?))).transpose()?;
        Ok(Self { server, client: Usage::of_this_process()?, syscalls })
    }

    pub(crate) fn finish(self) -> anyhow::Result<Costs> {
        let server = match self.server {
            Some((pid, before)) => Some(Usage::of(pid)?.since(&before)),
            None => None,
        };
        let client = Usage::of_this_process()?.since(&self.client);
        let syscalls = self.syscalls.map(SyscallCount::finish).transpose()?;
        Ok(Costs { server: server.map(|cost| Cost { syscalls, ..cost }), client })
    }
}
