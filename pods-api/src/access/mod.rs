//! Who is calling: the peer of a connection, as the kernel recorded it.

mod identity;
mod peer;

pub use identity::{Identify, Identity};
pub use peer::{Peer, PeerKey};
