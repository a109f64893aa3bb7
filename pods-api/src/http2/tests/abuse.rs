//! Peers that cost more than they should (RFC 9113 section 10.5 and what became known since).

use std::time::Duration;

use super::super::frame::{Kind, flag};
use super::super::testing::{Client, block, data, frame, request, rst_stream, settings, window_update};
use super::super::{Config, ErrorCode, Event, FieldBlock};

/// The bytes of the nth turn of a flood.
type Frames = fn(u32) -> Vec<u8>;

/// Sends the `n`th frame of a flood, as often as asked or until the connection is closed; returns how often.
fn flood(client: &mut Client, times: u32, pause: Duration, mut nth: impl FnMut(u32) -> Vec<u8>) -> u32 {
    for count in 0..times {
        client.pass(pause);
        client.send(&nth(count));
        client.events_seen();
        if client.is_cut() {
            return count;
        }
    }
    times
}

impl Client {
    /// Takes events and output, as an owner that keeps up does.
    fn events_seen(&mut self) {
        while let Some(event) = self.connection.next_event() {
            if let Event::ConnectionClosed { code, .. } = event {
                assert_eq!(code, ErrorCode::ENHANCE_YOUR_CALM);
            }
        }
        self.bytes();
    }

    fn is_cut(&self) -> bool {
        self.connection.is_done()
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

fn ok() -> FieldBlock {
    FieldBlock::new(&[(":status", "200")])
}

// GRPC-6
#[test]
fn keepalive_pings_are_welcome_and_a_flood_is_cut() {
    let ping = |_| frame(Kind::PING, 0, 0, &[0; 8]);
    let mut client = Client::new();
    assert_eq!(flood(&mut client, 1000, Duration::from_secs(10), ping), 1000);
    let cut_after = flood(&mut client, 1000, MILLISECOND, ping);
    assert!((50..200).contains(&cut_after), "{cut_after}");
}

// A client that measures the bandwidth sends a PING with each batch of DATA it gets.
#[test]
fn pings_that_come_with_responses_are_welcome() {
    let mut client = Client::new();
    for number in (1..20_000).step_by(2) {
        let stream = client.request(number);
        client.connection.send_headers(stream, ok(), true).unwrap();
        client.send(&frame(Kind::PING, 0, 0, &[0; 8]));
        client.events_seen();
        assert!(!client.is_cut());
    }
}

// GRPC-11, CVE-2023-44487
#[test]
fn rapid_resets_are_cut() {
    let mut client = Client::new();
    let cut_after = flood(&mut client, 1_000_000, Duration::ZERO, |count| {
        let number = 2 * count + 1;
        [request(number, flag::END_STREAM), rst_stream(number, ErrorCode::CANCEL)].concat()
    });
    assert_eq!(cut_after, 2048);
}

// GRPC-11, CVE-2025-8671
#[test]
fn provoked_resets_are_cut() {
    for provoke in [
        (|number| window_update(number, 0)) as Frames,
        |number| window_update(number, 0x7fff_ffff),
        |number| frame(Kind::PRIORITY, 0, number, &[0; 4]),
        |number| data(number, 0, b"after END_STREAM"),
    ] {
        let mut client = Client::new();
        let cut_after = flood(&mut client, 1_000_000, Duration::ZERO, |count| {
            let number = 2 * count + 1;
            [request(number, flag::END_STREAM), provoke(number)].concat()
        });
        assert!(cut_after <= 4096, "{cut_after}");
    }
}

#[test]
fn malformed_and_refused_requests_are_cut() {
    let mut client = Client::new();
    let malformed = block(&[(":method", "GET")]);
    let cut_after = flood(&mut client, 1_000_000, Duration::ZERO, |count| {
        frame(Kind::HEADERS, flag::END_HEADERS, 2 * count + 1, &malformed)
    });
    assert_eq!(cut_after, 2048);
    let mut client = Client::with(Config { max_concurrent_streams: 1, ..Config::default() });
    let cut_after = flood(&mut client, 1_000_000, Duration::ZERO, |count| request(2 * count + 1, 0));
    assert_eq!(cut_after, 2049);
}

#[test]
fn a_client_may_cancel_everything_it_has_open() {
    let mut client = Client::new();
    for number in (1..2048).step_by(2) {
        client.request(number);
    }
    assert_eq!(client.connection.open_streams(), 1024);
    for number in (1..2048).step_by(2) {
        client.send(&rst_stream(number, ErrorCode::CANCEL));
    }
    assert_eq!(client.events().len(), 1024);
    assert_eq!(client.connection.open_streams(), 0);
    assert!(!client.is_cut());
}

// CVE-2019-9515, CVE-2019-9513, CVE-2019-9518
#[test]
fn floods_of_frames_without_effect_are_cut() {
    let floods: [(&str, Frames); 8] = [
        ("SETTINGS", |_| settings(&[])),
        ("PRIORITY", |_| frame(Kind::PRIORITY, 0, 7, &[0; 5])),
        ("empty DATA", |_| data(1, 0, b"")),
        ("DATA of padding", |_| data(1, flag::PADDED, &[3, 0, 0, 0])),
        ("unknown frames", |_| frame(Kind(0x55), 0, 0, b"")),
        ("WINDOW_UPDATE", |_| window_update(0, 1)),
        ("PING acknowledgements", |_| frame(Kind::PING, flag::ACK, 0, &[0; 8])),
        ("RST_STREAM on a closed stream", |_| rst_stream(3, ErrorCode::CANCEL)),
    ];
    for (what, nth) in floods {
        let mut client = Client::new();
        client.send(&request(1, 0));
        client.request_reset(3);
        let cut_after = flood(&mut client, 100_000, Duration::ZERO, nth);
        assert!(cut_after < 5000, "{what}: {cut_after}");
    }
}

impl Client {
    fn request_reset(&mut self, number: u32) {
        self.send(&[request(number, flag::END_STREAM), rst_stream(number, ErrorCode::CANCEL)].concat());
        self.events_seen();
    }
}

// The windows of a busy stream are returned many times a second.
#[test]
fn window_updates_that_responses_explain_are_welcome() {
    let mut client = Client::new();
    let stream = client.request(1);
    client.connection.send_headers(stream, ok(), false).unwrap();
    for _ in 0..300 {
        client.connection.send_data(stream, vec![0; 16_384].into(), false).unwrap();
        client.events_seen();
        // Reads of one kilobyte, each returned at once.
        for _ in 0..16 {
            client.send(&[window_update(0, 1024), window_update(1, 1024)].concat());
        }
        assert!(!client.is_cut());
    }
}

// GRPC-12, CVE-2024-27316
#[test]
fn an_endless_field_block_is_cut_at_a_bounded_size() {
    let mut client = Client::new();
    client.send(&frame(Kind::HEADERS, 0, 1, &block(&[(":method", "POST")])));
    let cut_after =
        flood(&mut client, 1_000_000, Duration::ZERO, |_| frame(Kind::CONTINUATION, 0, 1, &[0x40; 16_384]));
    assert_eq!(cut_after, 15);
    let mut client = Client::new();
    client.send(&frame(Kind::HEADERS, 0, 1, &[]));
    let cut_after = flood(&mut client, 1_000_000, Duration::ZERO, |_| frame(Kind::CONTINUATION, 0, 1, &[]));
    assert_eq!(cut_after, 1024);
}

// A few bytes on the wire that stand for many: one large table entry, named again and again.
#[test]
fn inflated_header_sections_are_bounded() {
    let mut client = Client::new();
    let mut enter = block(super::super::testing::REQUEST);
    enter.extend_from_slice(b"\x40\x01a\x7f\xa1\x1e"); // a value of 4,000 bytes
    enter.extend_from_slice(&[b'x'; 4000]);
    client.send(&frame(Kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &enter));
    client.events_seen();

    let fifteen = [block(super::super::testing::REQUEST), vec![0xbe; 15]].concat();
    let requests: Vec<u8> = (3..2000)
        .step_by(2)
        .flat_map(|number| frame(Kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, number, &fifteen))
        .collect();
    client.send(&requests);
    let heads: usize = client
        .events()
        .iter()
        .map(|event| match event {
            Event::Request { head, .. } => head.fields().map(|(_, value)| value.len()).sum(),
            _ => 0,
        })
        .sum();
    assert!((1 << 20..(1 << 20) + 70_000).contains(&heads), "{heads}");
    client.bytes();
    client.send(&request(2001, flag::END_STREAM));
    client.requested();

    let bomb = [block(super::super::testing::REQUEST), vec![0xbe; 16_000]].concat();
    client.send(&frame(Kind::HEADERS, flag::END_HEADERS, 2003, &bomb));
    assert!(client.events().is_empty());
    assert_eq!(client.output()[0].payload, FieldBlock::new(&[(":status", "431")]).as_bytes());
}

#[test]
fn a_peer_that_provokes_answers_and_does_not_read_is_cut() {
    let mut client =
        Client::with(Config { pings: super::super::Limit::new(1 << 20, 1), ..Config::default() });
    for _ in 0..10_000 {
        client.send(&frame(Kind::PING, 0, 0, &[0; 8]));
    }
    let closed = client.events();
    assert!(matches!(closed[..], [Event::ConnectionClosed { code: ErrorCode::ENHANCE_YOUR_CALM, .. }]));
    assert!(client.bytes().len() < 70_000);
}

// RFC 9113 section 10.5: whatever a peer does, and however often, a connection stays small.
#[test]
fn memory_stays_small_after_all_kinds_of_traffic() {
    let mut client = Client::new();
    let long = "x".repeat(60_000);
    let large = block(&[super::super::testing::REQUEST, &[("a", long.as_str())]].concat());
    let mut number = 1;
    for _ in 0..20 {
        // A header section near the limit in CONTINUATION frames, then a thousand requests in one read.
        let mut parts = large.chunks(16_384).peekable();
        let mut kind = Kind::HEADERS;
        while let Some(part) = parts.next() {
            let flags = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
            client.send(&frame(kind, flags, number, part));
            kind = Kind::CONTINUATION;
        }
        client.send(&rst_stream(number, ErrorCode::CANCEL));
        let burst: Vec<u8> =
            (1..=1000).flat_map(|next| request(number + 2 * next, flag::END_STREAM)).collect();
        number += 2002;
        client.send(&burst);
        for event in client.events() {
            if let Event::Request { stream, .. } = event {
                let _ = client.connection.send_headers(stream, ok(), true);
            }
        }
        client.events_seen();
        client.pass(MILLISECOND * 100);
    }
    assert_eq!(client.connection.open_streams(), 0);
    // Slots of a thousand streams are the largest part, 300 bytes each.
    let held = client.connection.held_bytes();
    assert!(held < 512 << 10, "{held}");
}

// Requests are opened and reset while the socket takes nothing, so that no turn ever comes.
#[test]
fn turns_of_streams_that_are_gone_do_not_pile_up() {
    let mut client = Client::new();
    for count in 0..10_000 {
        client.pass(10 * MILLISECOND);
        let stream = client.request(2 * count + 1);
        client.connection.send_headers(stream, ok(), false).unwrap();
        client.send(&rst_stream(2 * count + 1, ErrorCode::CANCEL));
        client.events();
    }
    assert!(client.connection.send.turns() < 1000, "{}", client.connection.send.turns());
    assert!(client.output().is_empty());
}
