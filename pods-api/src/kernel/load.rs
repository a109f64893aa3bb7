//! Loads, attaches and pins the kernel programs that `build.rs` has embedded. Runs on the `kernel` thread, once.
//!
//! Order: causes of refusal that can be seen, offsets from BTF, maps, programs, attachments, pins, and last what was
//! there before: a cgroup made while the programs are being attached is then found one way or the other.

use super::object::{PROGRAMS, Program};
use super::offsets::{self, Globals};
use super::pins::{self, Pins};
use super::refusal::{self, Refusal};
use super::ring::Ring;
use super::shared_map::SharedMap;
use super::status::{EbpfState, EbpfStatus};
use super::{logger, object, seed};
use aya::maps::{HashMap, Map, MapData, PerCpuArray, RingBuf};
use aya::programs::{ProgramError, RawTracePoint};
use aya::{Ebpf, EbpfLoader};
use pods_api_common::{Counters, map};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Instant;
use tracing::{debug, info, warn};

/// Whether the kernel side uses eBPF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum EbpfMode {
    /// Where the kernel allows it.
    Auto,
    /// The server does not start without.
    Require,
    /// Never.
    Off,
}

/// How to load.
#[derive(Debug, Clone)]
pub struct EbpfConfig {
    /// Whether.
    pub mode: EbpfMode,
    /// Bytes of the ring buffer; a power of two of pages, else rounded up to one.
    pub ring_bytes: u32,
    /// Whether others are to find the programs and maps by name.
    pub is_pinned: bool,
}

/// Size of the ring buffer, unless configured: the events of 10,000 executions, of 1,200 new cgroups.
pub const DEFAULT_RING_BYTES: u32 = 512 << 10;

/// Smallest ring buffer tried when there is no memory for a larger one.
const MIN_RING_BYTES: u32 = 4 << 10;

/// The programs at work, and what user space has of them.
#[derive(Debug)]
pub struct KernelPrograms {
    /// Events.
    pub ring: Ring,
    /// The map for others.
    pub map: SharedMap,
    /// What metrics and readiness show.
    pub status: Arc<EbpfStatus>,
}

/// The programs, attached until this is dropped; then the pins go.
#[derive(Debug)]
pub(super) struct Attached {
    // Dropped first: nothing is attached by the time that the pins are removed.
    _programs: Programs,
    _pins: Option<Pins>,
}

/// Aya's handle, which has no `Debug` of use.
struct Programs(Ebpf);

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.programs().map(|(name, _)| name)).finish()
    }
}

/// Loads and attaches the programs, and says in one line why where that is not possible.
///
/// # Errors
/// The cause, where the programs are required.
pub fn load_as_configured(config: &EbpfConfig) -> Result<(EbpfState, Option<(Ring, SharedMap)>), Refusal> {
    match load(config) {
        Ok(programs) => Ok((EbpfState::Attached(programs.status), Some((programs.ring, programs.map)))),
        Err(refusal) if config.mode == EbpfMode::Require => Err(refusal),
        Err(refusal) => {
            match refusal {
                // As the operator or the builder wanted it.
                Refusal::Off | Refusal::NotBuilt => info!(reason = %refusal, "no eBPF"),
                _ => warn!(reason = %refusal, "no eBPF: what happens in cgroups is learned later"),
            }
            Ok((EbpfState::Refused(Arc::new(refusal)), None))
        }
    }
}

/// Loads and attaches the programs.
///
/// # Errors
/// The one cause that an operator can do something about.
pub fn load(config: &EbpfConfig) -> Result<KernelPrograms, Refusal> {
    if config.mode == EbpfMode::Off {
        return Err(Refusal::Off);
    }
    let started = Instant::now();
    let object = object::embedded().ok_or(Refusal::NotBuilt)?;
    refusal::check_system()?;
    let globals = offsets::of_running_kernel()?;
    let (mut ebpf, ring_bytes) = create_maps(object, &globals, config.ring_bytes)?;
    let logger = logger::take(&mut ebpf);
    for program in &PROGRAMS {
        load_program(&mut ebpf, program)?;
    }
    for program in &PROGRAMS {
        attach_program(&mut ebpf, program)?;
    }
    let (pins, pins_problem) = if config.is_pinned { try_to_pin(&mut ebpf) } else { (None, None) };
    // After pinning, which needs them all in one place.
    let events = RingBuf::try_from(take_map(&mut ebpf, map::EVENTS)?).map_err(other)?;
    let counters: PerCpuArray<MapData, Counters> =
        PerCpuArray::try_from(take_map(&mut ebpf, map::COUNTERS)?).map_err(other)?;
    let mut processes = HashMap::try_from(take_map(&mut ebpf, map::PROCESSES)?).map_err(other)?;
    let mut tracked = HashMap::try_from(take_map(&mut ebpf, map::TRACKED)?).map_err(other)?;
    let cgroups = HashMap::try_from(take_map(&mut ebpf, map::CGROUPS)?).map_err(other)?;
    let seeded = seed::fill(&mut tracked, &mut processes);
    let status = Arc::new(EbpfStatus::new(counters, ring_bytes, pins_problem));
    let attached = Attached { _programs: Programs(ebpf), _pins: pins };
    info!(
        programs = PROGRAMS.len(),
        ring_bytes,
        cgroups = seeded.cgroups,
        processes = seeded.processes,
        milliseconds = started.elapsed().as_millis() as u64,
        "kernel programs attached"
    );
    Ok(KernelPrograms {
        ring: Ring::new(events, logger, attached, status.clone()),
        map: SharedMap::new(cgroups, tracked, processes, status.clone()),
        status,
    })
}

/// Creates the maps, with a smaller ring buffer where there is no memory for the one asked for.
fn create_maps(object: &[u8], globals: &Globals, ring_bytes: u32) -> Result<(Ebpf, u32), Refusal> {
    let mut bytes = ring_bytes.max(MIN_RING_BYTES);
    loop {
        let mut loader = EbpfLoader::new();
        // The object asks for no relocation by the kernel's types: offsets come in as globals.
        loader.btf(None).map_max_entries(map::EVENTS, bytes);
        for (name, value) in globals {
            loader.override_global(name, value, true);
        }
        logger::configure(&mut loader);
        match loader.load(object) {
            Ok(ebpf) => return Ok((ebpf, bytes)),
            Err(error) if refusal::is_errno(&error, Errno::NOMEM) => {
                if bytes <= MIN_RING_BYTES {
                    return Err(Refusal::Memory(bytes));
                }
                bytes = (bytes / 4).max(MIN_RING_BYTES);
                warn!(ring_bytes = bytes, "no memory for the ring buffer; a smaller one is tried");
            }
            Err(error) if refusal::is_errno(&error, Errno::PERM) => return Err(Refusal::Forbidden),
            Err(error) => return Err(other(error)),
        }
    }
}

fn load_program(ebpf: &mut Ebpf, program: &Program) -> Result<(), Refusal> {
    let raw = raw_tracepoint(ebpf, program)?;
    raw.load().map_err(|error| {
        debug!(program = program.name, %error, "verifier");
        if refusal::is_errno(&error, Errno::PERM) {
            Refusal::Forbidden
        } else {
            Refusal::Program { program: program.name, reason: verdict(&error) }
        }
    })
}

/// What the verifier found wrong: the last line of its log before its statistics.
fn verdict(error: &ProgramError) -> String {
    let ProgramError::LoadError { io_error, verifier_log } = error else { return refusal::one_line(error) };
    let log = verifier_log.to_string();
    let is_verdict = |line: &&str| {
        !["processed ", "verification time", "stack depth"].iter().any(|start| line.starts_with(start))
    };
    match log.lines().rev().find(is_verdict) {
        Some(line) => format!("{line} ({io_error})"),
        None => io_error.to_string(),
    }
}

fn attach_program(ebpf: &mut Ebpf, program: &Program) -> Result<(), Refusal> {
    let raw = raw_tracepoint(ebpf, program)?;
    raw.attach(program.tracepoint).map(drop).map_err(|error| {
        if refusal::is_errno(&error, Errno::PERM) {
            Refusal::Forbidden
        } else {
            Refusal::Attach { program: program.name, reason: refusal::one_line(&error) }
        }
    })
}

fn raw_tracepoint<'a>(ebpf: &'a mut Ebpf, program: &Program) -> Result<&'a mut RawTracePoint, Refusal> {
    let found = ebpf.program_mut(program.name);
    let found = found.ok_or_else(|| Refusal::Other(format!("the object has no program {}", program.name)))?;
    found.try_into().map_err(other)
}

fn take_map(ebpf: &mut Ebpf, name: &str) -> Result<Map, Refusal> {
    ebpf.take_map(name).ok_or_else(|| Refusal::Other(format!("the object has no map {name}")))
}

/// Pins what can be pinned; that it cannot be is no reason to do without the programs.
fn try_to_pin(ebpf: &mut Ebpf) -> (Option<Pins>, Option<String>) {
    match Pins::take().and_then(|pins| pin(ebpf, pins)) {
        Ok(pins) => (Some(pins), None),
        Err(error) => {
            warn!(%error, "kernel programs run without pins");
            (None, Some(error.to_string()))
        }
    }
}

/// Pins programs and maps under their names.
fn pin(ebpf: &mut Ebpf, pins: Pins) -> Result<Pins, pins::PinsError> {
    let failed = |error: &dyn std::fmt::Display| std::io::Error::other(error.to_string());
    for (name, program) in ebpf.programs_mut() {
        program.pin(pins.path(name)).map_err(|error| failed(&error))?;
    }
    for (name, map) in ebpf.maps() {
        if name.starts_with("pods_") {
            map.pin(pins.path(name)).map_err(|error| failed(&error))?;
        }
    }
    Ok(pins)
}

fn other(error: impl std::error::Error + 'static) -> Refusal {
    Refusal::Other(refusal::one_line(&error))
}
