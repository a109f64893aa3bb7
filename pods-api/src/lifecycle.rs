//! From start to stop: the signals that end the program.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, noticed from the moment this is made.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Takes over both signals.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for either and returns its name.
    pub async fn received(mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
