//! Who is calling: the peer of a connection, as the kernel recorded it.

mod peer;

pub use peer::{Peer, PeerKey};
