//! Bytes mean the same however they are split.

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::frame::{Kind, flag};
use super::super::testing::{
    Client, REQUEST, block, data, frame, handshake, request, rst_stream, settings, window_update,
};
use super::super::{Config, ErrorCode, Event, FieldBlock};

/// What a client does; numbers are made valid while the bytes are built.
#[derive(Clone, Debug)]
enum Step {
    Request {
        end_stream: bool,
        padding: u8,
    },
    LongRequest {
        value_len: usize,
        cuts: Vec<Index>,
    },
    Data {
        stream: Index,
        length: usize,
        padding: u8,
        end_stream: bool,
    },
    Trailers {
        stream: Index,
    },
    Reset {
        stream: Index,
    },
    Ping,
    Settings {
        window: u32,
    },
    WindowUpdate {
        stream: Option<Index>,
        increment: u32,
    },
    Unknown {
        length: usize,
    },
    /// Anything: mostly an error, then the end.
    Garbage(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), any::<u8>()).prop_map(|(end_stream, padding)| Step::Request { end_stream, padding }),
        1 => (0usize..3000, prop::collection::vec(any::<Index>(), 0..4))
            .prop_map(|(value_len, cuts)| Step::LongRequest { value_len, cuts }),
        4 => (any::<Index>(), 0usize..300, any::<u8>(), any::<bool>()).prop_map(
            |(stream, length, padding, end_stream)| Step::Data { stream, length, padding, end_stream }
        ),
        1 => any::<Index>().prop_map(|stream| Step::Trailers { stream }),
        1 => any::<Index>().prop_map(|stream| Step::Reset { stream }),
        1 => Just(Step::Ping),
        1 => (0u32..100_000).prop_map(|window| Step::Settings { window }),
        2 => (any::<Option<Index>>(), 1u32..50_000)
            .prop_map(|(stream, increment)| Step::WindowUpdate { stream, increment }),
        1 => (0usize..50).prop_map(|length| Step::Unknown { length }),
        1 => prop::collection::vec(any::<u8>(), 0..30).prop_map(Step::Garbage),
    ]
}

fn padded(kind: Kind, flags: u8, stream: u32, payload: &[u8], padding: u8) -> Vec<u8> {
    let padded = [&[padding][..], payload, &vec![0; usize::from(padding)]].concat();
    frame(kind, flags | flag::PADDED, stream, &padded)
}

/// The bytes of a connection.
fn bytes_of(steps: &[Step]) -> Vec<u8> {
    let mut bytes = handshake();
    let mut next = 1;
    for step in steps {
        let pick = |index: &Index| if next == 1 { 1 } else { 2 * index.index(next as usize / 2) as u32 + 1 };
        bytes.extend(match step {
            Step::Request { end_stream, padding } => {
                let flags = flag::END_HEADERS | if *end_stream { flag::END_STREAM } else { 0 };
                next += 2;
                padded(Kind::HEADERS, flags, next - 2, &block(REQUEST), *padding)
            }
            Step::LongRequest { value_len, cuts } => {
                next += 2;
                let long = block(&[REQUEST, &[("long", &"x".repeat(*value_len))]].concat());
                let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(long.len())).collect();
                cuts.extend([0, long.len()]);
                cuts.sort_unstable();
                let count = cuts.len() - 1;
                let fragments = cuts.windows(2).enumerate().flat_map(|(at, cut)| {
                    let kind = if at == 0 { Kind::HEADERS } else { Kind::CONTINUATION };
                    let flags = if at + 1 == count { flag::END_HEADERS } else { 0 };
                    frame(kind, flags, next - 2, &long[cut[0]..cut[1]])
                });
                fragments.collect()
            }
            Step::Data { stream, length, padding, end_stream } => {
                let flags = if *end_stream { flag::END_STREAM } else { 0 };
                padded(Kind::DATA, flags, pick(stream), &vec![b'd'; *length], *padding)
            }
            Step::Trailers { stream } => {
                let flags = flag::END_HEADERS | flag::END_STREAM;
                frame(Kind::HEADERS, flags, pick(stream), &block(&[("last", "words")]))
            }
            Step::Reset { stream } => rst_stream(pick(stream), ErrorCode::CANCEL),
            Step::Ping => frame(Kind::PING, 0, 0, b"12345678"),
            Step::Settings { window } => settings(&[(4, *window)]),
            Step::WindowUpdate { stream, increment } => {
                window_update(stream.as_ref().map_or(0, &pick), *increment)
            }
            Step::Unknown { length } => frame(Kind(0x77), 0x5a, 0, &vec![1; *length]),
            Step::Garbage(garbage) => garbage.clone(),
        });
    }
    bytes
}

/// What the connection told and sent when it got `parts` one after the other. Its owner answers each request when it
/// is complete; output is gathered once at the end, since what is sent when depends on when the owner looks.
fn run<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Vec<u8>) {
    let mut client = Client::silent(Config::default());
    let mut told = Vec::new();
    for part in parts {
        client.send(part);
        for event in client.events() {
            let complete = match &event {
                Event::Request { stream, end_stream: true, .. }
                | Event::Data { stream, end_stream: true, .. } => Some(*stream),
                Event::Trailers { stream, .. } => Some(*stream),
                _ => None,
            };
            if let Event::Data { stream, data, .. } = &event {
                client.connection.consume(*stream, data.len());
            }
            told.push(format!("{event:?}"));
            if let Some(stream) = complete {
                let fields = FieldBlock::new(&[(":status", "200")]);
                // The stream may have been reset by a later frame of the same part.
                let _ = client.connection.send_headers(stream, fields, false);
            }
        }
    }
    let bytes = client.bytes();
    (told, bytes)
}

proptest! {
    #[test]
    fn events_do_not_depend_on_how_bytes_are_split(
        steps in prop::collection::vec(step(), 1..30),
        cuts in prop::collection::vec(any::<Index>(), 0..40),
    ) {
        let bytes = bytes_of(&steps);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let (whole, _) = run(std::iter::once(&bytes[..]));
        let (pieces, _) = run(cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]));
        prop_assert_eq!(&pieces, &whole);
        let (single, _) = run(bytes.chunks(1));
        prop_assert_eq!(&single, &whole);
    }
}

#[test]
fn a_long_conversation_is_told_in_full_whatever_the_split() {
    let bytes = [handshake(), request(1, 0), data(1, flag::END_STREAM, b"abc")].concat();
    for size in 1..bytes.len() {
        let (told, output) = run(bytes.chunks(size));
        assert_eq!(told.len(), 2, "pieces of {size}");
        assert!(output.ends_with(&[0x88]), "pieces of {size}");
    }
}
