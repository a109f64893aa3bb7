//! What the kernel programs themselves log, at `--log debug`.
//!
//! Off, the programs carry no cost: the level is a read-only global, and the verifier drops what it switches off.

use aya::{Ebpf, EbpfLoader};
use aya_log::{EbpfLogger, LEVEL};
use log::{Log, Metadata, Record};
use tracing::{Level, debug, warn};

/// The map of the records.
const MAP: &str = "AYA_LOGS";
/// Its size while nothing is logged: the smallest there is.
const IDLE_BYTES: u32 = 4096;

static OFF: u8 = 0;
static DEBUG: u8 = 4;

/// Sets the level of the programs about to be loaded.
pub(super) fn configure(loader: &mut EbpfLoader<'_>) {
    loader.override_global(LEVEL, if is_enabled() { &DEBUG } else { &OFF }, false);
    if !is_enabled() {
        loader.map_max_entries(MAP, IDLE_BYTES);
    }
}

/// The reader of the records, while they are wanted.
pub(super) fn take(ebpf: &mut Ebpf) -> Option<EbpfLogger<ToTracing>> {
    if !is_enabled() {
        return None;
    }
    let logger = EbpfLogger::init_with_logger(ebpf, ToTracing);
    logger.map_err(|error| warn!(%error, "what the kernel programs log cannot be read")).ok()
}

fn is_enabled() -> bool {
    tracing::enabled!(Level::DEBUG)
}

/// Passes records on to this program's own log.
#[derive(Debug)]
pub(super) struct ToTracing;

impl Log for ToTracing {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        debug!("{}", record.args());
    }

    fn flush(&self) {}
}
