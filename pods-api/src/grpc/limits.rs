//! The rate limit of ListPods, GetPod and Lookup (rule E.3.1, SOCK-7).
//!
//! A bucket is found once per connection, under a lock that only accepting a connection takes; each call then costs
//! one atomic operation on its bucket.

use super::status::{Code, Status};
use crate::access::PeerKey;
use governor::clock::{Clock, QuantaClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

/// The most peers that have a bucket of their own at one time.
const MAX_BUCKETS: usize = 4096;

/// What callers share a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scope {
    /// One bucket per caller: no noisy caller takes another's share.
    Peer,
    /// One bucket for the whole server, as the kubelet has it.
    Server,
}

/// All buckets of the server.
#[derive(Debug)]
pub struct Limits {
    scope: Scope,
    quota: Quota,
    server: Bucket,
    clock: QuantaClock,
    /// Guards the buckets by peer; taken by workers when they accept a connection.
    peers: Mutex<Peers>,
}

#[derive(Debug, Default)]
struct Peers {
    buckets: HashMap<PeerKey, (Bucket, u64)>,
    /// Grows with each accepted connection; the least one in `buckets` is the least recently used.
    uses: u64,
}

/// One caller's tokens.
#[derive(Debug, Clone)]
pub struct Bucket(Arc<DefaultDirectRateLimiter>);

impl Limits {
    /// Buckets that fill at `qps` tokens per second up to `burst` tokens.
    #[must_use]
    pub fn new(scope: Scope, qps: NonZeroU32, burst: NonZeroU32) -> Self {
        let quota = Quota::per_second(qps).allow_burst(burst);
        Self {
            scope,
            quota,
            server: Bucket::new(quota),
            clock: QuantaClock::default(),
            peers: Mutex::default(),
        }
    }

    /// The bucket of a caller. The least recently connected caller's is forgotten when there are too many.
    #[must_use]
    pub fn bucket(&self, peer: &PeerKey) -> Bucket {
        if self.scope == Scope::Server {
            return self.server.clone();
        }
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.uses += 1;
        let now = peers.uses;
        if let Some((bucket, used)) = peers.buckets.get_mut(peer) {
            *used = now;
            return bucket.clone();
        }
        if peers.buckets.len() >= MAX_BUCKETS {
            // Linear, but only for a new caller while 4,096 others are known: some 10 µs.
            let oldest = peers.buckets.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            oldest.map(|key| peers.buckets.remove(&key));
        }
        let bucket = Bucket::new(self.quota);
        peers.buckets.insert(peer.clone(), (bucket.clone(), now));
        bucket
    }

    /// Takes one token.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED `rejected by rate limit`, with the time after which there is a token.
    pub fn check(&self, bucket: &Bucket) -> Result<(), Status> {
        bucket.0.check().map_err(|not_until| {
            let mut status = Status::new(Code::ResourceExhausted, "rejected by rate limit");
            status.retry_after = Some(not_until.wait_time_from(self.clock.now()));
            status
        })
    }
}

impl Bucket {
    fn new(quota: Quota) -> Self {
        Self(Arc::new(RateLimiter::direct(quota)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Peer;

    fn limits(scope: Scope, qps: u32, burst: u32) -> Limits {
        Limits::new(scope, NonZeroU32::new(qps).unwrap(), NonZeroU32::new(burst).unwrap())
    }

    fn peer(uid: u32) -> PeerKey {
        Peer::unknown(uid, 0).key()
    }

    fn drain(limits: &Limits, bucket: &Bucket) -> usize {
        (0..1000).take_while(|_| limits.check(bucket).is_ok()).count()
    }

    #[test]
    fn the_burst_is_spent_and_then_refused_with_a_delay() {
        // rule E.3.1
        let limits = limits(Scope::Peer, 1, 10);
        let bucket = limits.bucket(&peer(1));
        assert_eq!(drain(&limits, &bucket), 10);
        let status = limits.check(&bucket).unwrap_err();
        assert_eq!((status.code, &*status.message), (Code::ResourceExhausted, "rejected by rate limit"));
        let delay = status.retry_after.unwrap();
        assert!(!delay.is_zero() && delay <= std::time::Duration::from_secs(1), "{delay:?}");
    }

    #[test]
    fn one_peer_does_not_take_from_another() {
        // SOCK-7
        let limits = limits(Scope::Peer, 1, 3);
        assert_eq!(drain(&limits, &limits.bucket(&peer(1))), 3);
        assert_eq!(drain(&limits, &limits.bucket(&peer(1))), 0, "a second connection has the same bucket");
        assert_eq!(drain(&limits, &limits.bucket(&peer(2))), 3);
    }

    #[test]
    fn with_server_scope_all_share_one_bucket() {
        let limits = limits(Scope::Server, 1, 3);
        assert_eq!(drain(&limits, &limits.bucket(&peer(1))), 3);
        assert_eq!(drain(&limits, &limits.bucket(&peer(2))), 0);
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let limits = limits(Scope::Peer, 1, 1);
        let kept = limits.bucket(&peer(0));
        for uid in 0..u32::try_from(MAX_BUCKETS).unwrap() + 10 {
            let _ = limits.bucket(&peer(uid));
            let _ = limits.bucket(&peer(0));
        }
        let peers = limits.peers.lock().unwrap();
        assert_eq!(peers.buckets.len(), MAX_BUCKETS);
        assert!(Arc::ptr_eq(&peers.buckets[&peer(0)].0.0, &kept.0), "a peer in use is not forgotten");
        assert!(!peers.buckets.contains_key(&peer(1)));
    }
}
