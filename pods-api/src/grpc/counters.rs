//! How many calls ended how (rules E.3.3 to E.3.5, MET-3).
//!
//! A fixed table of atomics, written by the workers and read by a scrape: counting a call is one relaxed addition.

use super::status::Code;
use std::sync::atomic::{AtomicU64, Ordering};

/// The service a call belongs to; its text is the label `server_api_version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// `/v1alpha1.Pods/`, what the kubelet serves.
    V1alpha1,
    /// `/Pods/`, what kubernetes.io documents.
    Documented,
    /// `/podsapi.v1.Node/`, ours.
    Node,
}

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// ListPods.
    List,
    /// GetPod.
    Get,
    /// WatchPods.
    Watch,
    /// podsapi.v1 Lookup.
    Lookup,
    /// podsapi.v1 WhoAmI.
    WhoAmI,
    /// podsapi.v1 Watchers.
    Watchers,
}

/// Why a call was turned away before it was counted as a request (rule E.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// The access policy does not let the caller do this.
    Policy,
    /// The caller's bucket is empty.
    RateLimit,
}

impl Rejection {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::Policy, Self::RateLimit];

    /// The reason, for metrics of ours.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::RateLimit => "rate_limit",
        }
    }
}

impl Api {
    /// Every service.
    pub const ALL: [Self; 3] = [Self::V1alpha1, Self::Documented, Self::Node];

    /// The label's value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1alpha1",
            Self::Documented => "documented",
            Self::Node => "podsapi.v1",
        }
    }
}

impl Method {
    /// Every operation.
    pub const ALL: [Self; 6] =
        [Self::List, Self::Get, Self::Watch, Self::Lookup, Self::WhoAmI, Self::Watchers];

    /// The operation's name, for metrics of ours.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "ListPods",
            Self::Get => "GetPod",
            Self::Watch => "WatchPods",
            Self::Lookup => "Lookup",
            Self::WhoAmI => "WhoAmI",
            Self::Watchers => "Watchers",
        }
    }
}

/// Calls that ended, by service, operation and status code.
#[derive(Debug, Default)]
pub struct RequestCounters {
    ended: [[[AtomicU64; Code::COUNT]; Method::ALL.len()]; Api::ALL.len()],
    rejected: [AtomicU64; Rejection::ALL.len()],
}

impl RequestCounters {
    /// Counts a call at its end; a running watch is in no counter (rule E.3.5).
    pub fn ended(&self, api: Api, method: Method, code: Code) {
        self.ended[api as usize][method as usize][code as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that was turned away.
    pub fn rejected(&self, reason: Rejection) {
        self.rejected[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many calls were turned away.
    #[must_use]
    pub fn rejections(&self, reason: Rejection) -> u64 {
        self.rejected[reason as usize].load(Ordering::Relaxed)
    }

    /// Every combination that has occurred.
    pub fn iter(&self) -> impl Iterator<Item = (Api, Method, Code, u64)> {
        Api::ALL.into_iter().flat_map(move |api| {
            Method::ALL.into_iter().flat_map(move |method| {
                (0..).map_while(Code::known).filter_map(move |code| {
                    let count =
                        self.ended[api as usize][method as usize][code as usize].load(Ordering::Relaxed);
                    (count > 0).then_some((api, method, code, count))
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_occurred_is_listed() {
        let counters = RequestCounters::default();
        counters.ended(Api::V1alpha1, Method::List, Code::Ok);
        counters.ended(Api::V1alpha1, Method::List, Code::Ok);
        counters.ended(Api::Documented, Method::Watch, Code::Cancelled);
        let all: Vec<_> = counters.iter().collect();
        assert_eq!(
            all,
            [
                (Api::V1alpha1, Method::List, Code::Ok, 2),
                (Api::Documented, Method::Watch, Code::Cancelled, 1)
            ]
        );
    }
}
