//! What a connection allows its peer.

use std::time::Duration;

use super::block::FieldBlock;
use super::flow::DEFAULT_WINDOW;
use super::frame::MIN_MAX_FRAME_SIZE;
use super::hpack;
use super::rates::Limit;

/// Limits and timeouts of a connection. The defaults suit small requests and large responses over a local socket.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many requests may be open at once; one more is refused with REFUSED_STREAM.
    pub max_concurrent_streams: u32,
    /// Receive window of a stream, in bytes. Requests are small, so the protocol's default suffices and costs no
    /// setting.
    pub initial_window: u32,
    /// Receive window of the connection, in bytes: bounds what peers can make the owner hold. At least 65,535.
    pub connection_window: u32,
    /// Largest frame payload accepted, in bytes; 16,384 to 16,777,215. A partial frame is kept in memory.
    pub max_frame_size: u32,
    /// Largest header section accepted, in bytes as SETTINGS_MAX_HEADER_LIST_SIZE counts them. A request beyond it
    /// is answered with [`Config::too_large`]; a field block of four times this size ends the connection.
    pub header_list_limit: usize,
    /// Size of the dynamic table that the peer may use, in bytes.
    pub header_table_size: usize,
    /// What answers a request whose header section is too large: a complete response without a body.
    pub too_large: FieldBlock,
    /// Decoded header sections that wait for [`Connection::next_event`](super::Connection::next_event), in bytes;
    /// beyond it requests are refused. Bounds how far a few received bytes can be inflated.
    pub max_pending_heads: usize,
    /// Control frames that wait to be gathered, in bytes. A peer that provokes answers and does not read them is cut
    /// off beyond this.
    pub max_queued_control: usize,
    /// At or below this many waiting bytes a stream that was above it is reported as writable.
    pub send_low_water: usize,
    /// PINGs beyond those that come with responses (keepalives).
    pub pings: Limit,
    /// SETTINGS frames.
    pub settings: Limit,
    /// Streams that end by RST_STREAM, whichever side sends it, and refused ones (CVE-2023-44487, CVE-2025-8671).
    pub resets: Limit,
    /// WINDOW_UPDATEs beyond those that responses explain.
    pub window_updates: Limit,
    /// Frames that do nothing: PRIORITY, empty DATA and CONTINUATION, unknown types, frames on closed streams.
    pub noise: Limit,
    /// How long the peer may take for its preface, its SETTINGS and the acknowledgement of ours.
    pub handshake_timeout: Duration,
    /// How long a field block may take from its HEADERS frame to END_HEADERS.
    pub header_timeout: Duration,
    /// How long a complete response may wait for the peer's windows while no body leaves: it is reset then, so that a
    /// peer cannot have us keep old bytes for ever (CVE-2019-9517). A response that goes on, such as a watch, is its
    /// owner's to end.
    pub stall_timeout: Duration,
    /// How long a connection may be without streams. None by default: agents keep one connection for ever.
    pub idle_timeout: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_concurrent_streams: 1024,
            initial_window: DEFAULT_WINDOW,
            connection_window: 1 << 20,
            max_frame_size: MIN_MAX_FRAME_SIZE,
            header_list_limit: 64 << 10,
            header_table_size: hpack::DEFAULT_TABLE_SIZE,
            too_large: FieldBlock::new(&[(":status", "431")]),
            max_pending_heads: 1 << 20,
            max_queued_control: 64 << 10,
            send_low_water: 16 << 10,
            // A client that keeps alive every 10 s uses a hundredth of this; 1,000 per second last a tenth of a second.
            pings: Limit::new(100, 10),
            settings: Limit::new(32, 2),
            // A client may cancel all its streams at once, twice.
            resets: Limit::new(2048, 100),
            window_updates: Limit::new(4096, 1000),
            noise: Limit::new(1024, 100),
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(60),
            idle_timeout: None,
        }
    }
}
