//! Which driver is asked for, and its names in flags.

use super::counters::DriverKind;
use std::fmt;
use std::str::FromStr;

/// Which driver moves the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// io_uring where the system allows it, else epoll.
    #[default]
    Auto,
    /// io_uring, or no start.
    IoUring,
    /// epoll.
    Epoll,
}

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "io_uring" => Ok(Self::IoUring),
            "epoll" => Ok(Self::Epoll),
            _ => Err(UnknownTransport),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::IoUring => DriverKind::IoUring.label(),
            Self::Epoll => DriverKind::Epoll.label(),
        })
    }
}

/// Not the name of a transport.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the transport is one of auto, io_uring and epoll")]
pub struct UnknownTransport;
