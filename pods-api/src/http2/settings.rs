//! SETTINGS (RFC 9113 section 6.5): what we announce and what the peer says.

use super::config::Config;
use super::error::ConnectionError;
use super::flow::{DEFAULT_WINDOW, MAX_WINDOW};
use super::frame::{self, Kind, MAX_MAX_FRAME_SIZE, MIN_MAX_FRAME_SIZE};
use super::hpack;

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;

/// Appends our SETTINGS, and the WINDOW_UPDATE that makes the connection's window what it shall be.
pub(crate) fn announce(config: &Config, out: &mut Vec<u8>) {
    let settings = [
        (HEADER_TABLE_SIZE, config.header_table_size as u32, hpack::DEFAULT_TABLE_SIZE as u32),
        // Unlimited is the default, which no limit of ours is.
        (MAX_CONCURRENT_STREAMS, config.max_concurrent_streams, u32::MAX),
        (INITIAL_WINDOW_SIZE, config.initial_window, DEFAULT_WINDOW),
        (MAX_FRAME_SIZE, config.max_frame_size, MIN_MAX_FRAME_SIZE),
        (MAX_HEADER_LIST_SIZE, config.header_list_limit as u32, u32::MAX),
    ];
    let mut payload = Vec::with_capacity(settings.len() * 6);
    for (id, value, default) in settings {
        if value != default {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
    }
    frame::append(out, Kind::SETTINGS, 0, 0, &payload);
    let more = config.connection_window.saturating_sub(DEFAULT_WINDOW);
    if more > 0 {
        frame::append_window_update(out, 0, more);
    }
}

/// What the peer's SETTINGS say about frames that we send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerSettings {
    /// Send window of a new stream.
    pub(crate) initial_window: u32,
    pub(crate) max_frame_size: u32,
    /// The peer may have shrunk its dynamic table. We use none, but the next field block must say so
    /// (RFC 7541 section 4.2).
    pub(crate) must_shrink_table: bool,
}

impl PeerSettings {
    /// What holds before the peer says otherwise.
    pub(crate) const DEFAULT: Self =
        Self { initial_window: DEFAULT_WINDOW, max_frame_size: MIN_MAX_FRAME_SIZE, must_shrink_table: false };

    /// Applies the payload of a SETTINGS frame, in order; unknown settings are ignored.
    pub(crate) fn apply(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let (settings, []) = payload.as_chunks::<6>() else {
            return Err(ConnectionError::frame_size("a SETTINGS frame is not a multiple of six bytes"));
        };
        for &[i0, i1, v0, v1, v2, v3] in settings {
            let value = u32::from_be_bytes([v0, v1, v2, v3]);
            match u16::from_be_bytes([i0, i1]) {
                HEADER_TABLE_SIZE => self.must_shrink_table |= value < hpack::DEFAULT_TABLE_SIZE as u32,
                ENABLE_PUSH if value > 1 => {
                    return Err(ConnectionError::protocol("SETTINGS_ENABLE_PUSH is neither 0 nor 1"));
                }
                INITIAL_WINDOW_SIZE if value > MAX_WINDOW => {
                    return Err(ConnectionError::flow_control("SETTINGS_INITIAL_WINDOW_SIZE is too large"));
                }
                INITIAL_WINDOW_SIZE => self.initial_window = value,
                MAX_FRAME_SIZE if !(MIN_MAX_FRAME_SIZE..=MAX_MAX_FRAME_SIZE).contains(&value) => {
                    return Err(ConnectionError::protocol("SETTINGS_MAX_FRAME_SIZE is out of range"));
                }
                MAX_FRAME_SIZE => self.max_frame_size = value,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::ErrorCode;
    use super::*;

    fn apply(settings: &[(u16, u32)]) -> Result<PeerSettings, ErrorCode> {
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        let mut peer = PeerSettings::DEFAULT;
        peer.apply(&payload).map(|()| peer).map_err(|error| error.code)
    }

    // RFC 9113 section 6.5.2
    #[test]
    fn values_out_of_range_are_refused() {
        assert_eq!(apply(&[(ENABLE_PUSH, 2)]), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(apply(&[(INITIAL_WINDOW_SIZE, 1 << 31)]), Err(ErrorCode::FLOW_CONTROL_ERROR));
        assert_eq!(apply(&[(MAX_FRAME_SIZE, 16_383)]), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(apply(&[(MAX_FRAME_SIZE, 1 << 24)]), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(
            PeerSettings::DEFAULT.clone().apply(&[0; 5]).map_err(|e| e.code),
            Err(ErrorCode::FRAME_SIZE_ERROR)
        );
    }

    // RFC 9113 sections 6.5.2 and 6.5.3
    #[test]
    fn values_are_taken_in_order_and_unknown_ones_ignored() {
        let peer = apply(&[
            (INITIAL_WINDOW_SIZE, 7),
            (0xbeef, 9),
            (MAX_CONCURRENT_STREAMS, 0),
            (INITIAL_WINDOW_SIZE, MAX_WINDOW),
            (MAX_FRAME_SIZE, 20_000),
            (ENABLE_PUSH, 0),
        ]);
        assert_eq!(
            peer,
            Ok(PeerSettings { initial_window: MAX_WINDOW, max_frame_size: 20_000, must_shrink_table: false })
        );
    }

    // RFC 7541 section 4.2
    #[test]
    fn a_table_below_the_default_is_noted_also_when_it_grows_again() {
        let peer = apply(&[(HEADER_TABLE_SIZE, 0), (HEADER_TABLE_SIZE, 4096)]).unwrap();
        assert!(peer.must_shrink_table);
        assert!(!apply(&[(HEADER_TABLE_SIZE, 65_536)]).unwrap().must_shrink_table);
    }

    #[test]
    fn only_what_differs_from_the_defaults_is_announced() {
        let mut out = Vec::new();
        announce(&Config::default(), &mut out);
        let settings = [0, 3, 0, 0, 4, 0, 0, 6, 0, 1, 0, 0];
        let update = (1u32 << 20) - 65_535;
        assert_eq!(out[..9], [0, 0, 12, 4, 0, 0, 0, 0, 0]);
        assert_eq!(out[9..21], settings);
        assert_eq!(out[21..30], [0, 0, 4, 8, 0, 0, 0, 0, 0]);
        assert_eq!(out[30..], update.to_be_bytes());
    }
}
