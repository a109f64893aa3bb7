//! The caller of a connection, and whether it is let in: the access policy, then the rate limit.
//!
//! What the policy says is kept with the connection as soon as it cannot change any more, which for most callers is at
//! once; a call then costs a look at it.

use super::counters::{Api, Method, Rejection};
use super::limits::Bucket;
use super::server::Shared;
use super::status::{Code, Status};
use crate::access::{Decision, Grant, Operation, Peer, Policy};
use crate::pod::{PodStore, Snapshot};
use crate::watch;
use std::sync::{Arc, OnceLock};

/// The caller of a connection.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) peer: Peer,
    bucket: Bucket,
    /// The decision of the policy, once it is final: what is granted, or nothing. Set by the connection's worker or by
    /// the control thread, whichever decides first; both would decide the same.
    grant: OnceLock<Option<Arc<Grant>>>,
}

impl Method {
    /// What a rule must allow for this; `None` for what every caller may. WhoAmI tells callers about nobody but
    /// themselves, and is how one finds out why one is refused.
    fn operation(self) -> Option<Operation> {
        match self {
            Self::List => Some(Operation::List),
            Self::Get => Some(Operation::Get),
            Self::Watch | Self::Watchers => Some(Operation::Watch),
            Self::Lookup => Some(Operation::Lookup),
            Self::WhoAmI => None,
        }
    }
}

impl Caller {
    pub(super) fn new(peer: Peer, bucket: Bucket) -> Self {
        Self { peer, bucket, grant: OnceLock::new() }
    }

    /// The caller as the list of watchers shows it.
    pub(super) fn for_display(&self) -> watch::Caller {
        watch::Caller {
            pid: self.peer.pid.map_or(0, |pid| pid.as_raw()),
            uid: self.peer.uid,
            executable: self.peer.executable.clone().unwrap_or_default(),
            pod: self.peer.pod().cloned(),
        }
    }

    /// What the policy grants the caller, if anything as yet.
    pub(super) fn grant(&self, policy: &Policy, store: &PodStore) -> Result<&Arc<Grant>, Refusal> {
        let decided = match self.grant.get() {
            Some(decided) => decided,
            None => match policy.decide(&self.peer, &store.load()) {
                Decision::Granted(grant) => self.grant.get_or_init(|| Some(grant)),
                Decision::Refused => self.grant.get_or_init(|| None),
                Decision::Undecided(grant) => return Err(Refusal::Undecided(grant)),
            },
        };
        decided.as_ref().ok_or(Refusal::NoRule)
    }
}

/// Why the policy refuses a call.
#[derive(Debug)]
pub(super) enum Refusal {
    /// No rule is about the caller.
    NoRule,
    /// This rule may be about the caller, but its pod is not known, or not even whether it runs in one.
    Undecided(Arc<Grant>),
    /// This rule is about the caller and leaves the operation out.
    Operation(Arc<Grant>, Operation),
}

impl Refusal {
    fn status(&self, peer: &Peer, pods: &Snapshot) -> Status {
        let reason = match self {
            Self::NoRule => {
                format!(
                    "no --allow rule is about this caller; --allow {} would be",
                    Policy::admitting(peer, pods)
                )
            }
            Self::Undecided(grant) if !peer.is_known() => format!(
                "it is not sure whether this caller runs in a pod, so that --allow {:?} cannot be decided; let the \
                 process that connects live on, or put --allow unknown or one for its user before that rule",
                grant.rule
            ),
            Self::Undecided(grant) => format!(
                "the caller's pod is not known to this server, so that --allow {:?} cannot be decided; try again \
                 once it is",
                grant.rule
            ),
            Self::Operation(grant, operation) => format!(
                "the rule for this caller, --allow {:?}, leaves {} out of its methods",
                grant.rule,
                operation.as_str()
            ),
        };
        Status::new(Code::PermissionDenied, format!("{reason} (seen as: {peer})"))
    }
}

impl Shared {
    /// Whether a call may be answered at all, and how much of an answer its caller may see: the policy, then the rate
    /// limit (rule E.4.1). Watches are not limited.
    pub(super) fn admit<'a>(&self, caller: &'a Caller, method: Method) -> Result<&'a Grant, Status> {
        let grant = match self.permit(caller, method) {
            Ok(grant) => grant,
            Err(refusal) => {
                // Before the sources have delivered, it is they who keep the policy waiting for a known caller's pod.
                if matches!(refusal, Refusal::Undecided(_)) && caller.peer.is_known() {
                    self.require_ready()?;
                }
                return Err(self.refuse(caller, method, &refusal));
            }
        };
        let is_limited = matches!(method, Method::List | Method::Get | Method::Lookup);
        if is_limited && let Err(status) = self.limits.check(&caller.bucket) {
            self.counters.rejected(Rejection::RateLimit);
            return Err(status);
        }
        Ok(grant)
    }

    fn permit<'a>(&self, caller: &'a Caller, method: Method) -> Result<&'a Arc<Grant>, Refusal> {
        let grant = caller.grant(&self.policy, &self.store)?;
        match method.operation() {
            Some(operation) if !grant.allows(operation) => Err(Refusal::Operation(grant.clone(), operation)),
            _ => Ok(grant),
        }
    }

    #[cold]
    fn refuse(&self, caller: &Caller, method: Method, refusal: &Refusal) -> Status {
        self.counters.rejected(Rejection::Policy);
        let status = refusal.status(&caller.peer, &self.store.load());
        self.refusals.log(&caller.peer, method, &status.message);
        status
    }

    /// Counts the end of a call. What the policy refuses is no request (rule E.3.2), also where it takes a look at the
    /// request to see that.
    pub(super) fn count_end(&self, caller: &Caller, api: Api, method: Method, outcome: Result<(), &Status>) {
        match outcome {
            Err(status) if status.code == Code::PermissionDenied => {
                self.counters.rejected(Rejection::Policy);
                self.refusals.log(&caller.peer, method, &status.message);
            }
            Err(status) => self.counters.ended(api, method, status.code),
            Ok(()) => self.counters.ended(api, method, Code::Ok),
        }
    }
}
