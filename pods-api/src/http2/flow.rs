//! Flow-control windows (RFC 9113 section 5.2): what the peer lets us send, and what we let it send.

/// The largest window (RFC 9113 section 6.9.1).
pub(crate) const MAX_WINDOW: u32 = 0x7fff_ffff;
/// The window of a connection and, before SETTINGS, of a stream.
pub(crate) const DEFAULT_WINDOW: u32 = 65_535;

/// A window would exceed 2^31-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowOverflow;

/// What the peer lets us send. Negative after SETTINGS shrank it below what is already sent (section 6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWindow(i32);

impl SendWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self(i32::try_from(size.min(MAX_WINDOW)).unwrap_or(i32::MAX))
    }

    /// Bytes that may be sent now.
    pub(crate) fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// Counts bytes as sent; they must have been available.
    pub(crate) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.available());
        self.0 -= bytes as i32;
    }

    /// Moves the window: a WINDOW_UPDATE, or the difference that SETTINGS_INITIAL_WINDOW_SIZE makes.
    pub(crate) fn shift(&mut self, by: i64) -> Result<(), WindowOverflow> {
        let moved = i64::from(self.0) + by;
        // Below i32::MIN is out of reach: the window is at least -(2^31-1), the size of the largest shrink.
        self.0 = i32::try_from(moved).map_err(|_| WindowOverflow)?;
        Ok(())
    }
}

/// What we let the peer send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    size: u32,
    available: u32,
    /// Consumed by us, not yet given back to the peer.
    consumed: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self { size, available: size, consumed: 0 }
    }

    /// Counts bytes that arrived; false if the peer had no right to send them.
    #[must_use]
    pub(crate) fn receive(&mut self, bytes: usize) -> bool {
        let Some(left) = u32::try_from(bytes).ok().and_then(|bytes| self.available.checked_sub(bytes)) else {
            return false;
        };
        self.available = left;
        true
    }

    /// Counts bytes as consumed and returns the WINDOW_UPDATE to send, if it is time for one. Half a window at a
    /// time: a small request never causes one, and a fast sender never finds the window empty.
    pub(crate) fn consume(&mut self, bytes: u32) -> Option<u32> {
        self.consumed += bytes;
        if self.consumed == 0 || self.consumed < self.size / 2 {
            return None;
        }
        self.available += self.consumed;
        Some(std::mem::take(&mut self.consumed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9113 section 6.9.2
    #[test]
    fn a_send_window_goes_negative_and_comes_back() {
        let mut window = SendWindow::new(60_000);
        window.take(60_000);
        window.shift(16_000 - 60_000).unwrap();
        assert_eq!(window.available(), 0);
        window.shift(44_000).unwrap();
        assert_eq!(window.available(), 0);
        window.shift(1).unwrap();
        assert_eq!(window.available(), 1);
    }

    // RFC 9113 section 6.9.1
    #[test]
    fn a_send_window_cannot_pass_its_maximum() {
        let mut window = SendWindow::new(MAX_WINDOW);
        assert_eq!(window.shift(1), Err(WindowOverflow));
        assert_eq!(window.available(), MAX_WINDOW as usize);
        window.take(MAX_WINDOW as usize);
        window.shift(-i64::from(MAX_WINDOW)).unwrap();
        assert_eq!(window.available(), 0);
    }

    #[test]
    fn a_receive_window_is_given_back_in_halves() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(100));
        assert!(!window.receive(1));
        assert_eq!(window.consume(49), None);
        assert_eq!(window.consume(1), Some(50));
        assert!(window.receive(50));
        assert!(!window.receive(1));
        assert_eq!(window.consume(0), None);
    }
}
