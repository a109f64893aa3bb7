//! Flow control in both directions and the order of turns (RFC 9113 sections 5.2 and 6.9).

use std::time::Duration;

use bytes::Bytes;

use super::super::frame::{Kind, PREFACE, flag};
use super::super::testing::{Client, data, frame, request, rst_stream, settings, window_update};
use super::super::{Config, ErrorCode, Event, FieldBlock, StreamId};

fn ok() -> FieldBlock {
    FieldBlock::new(&[(":status", "200")])
}

/// A response of so many bytes.
fn respond(client: &mut Client, stream: StreamId, bytes: usize) {
    client.connection.send_headers(stream, ok(), false).unwrap();
    client.connection.send_data(stream, vec![b'x'; bytes].into(), true).unwrap();
}

/// (stream, bytes) of each DATA frame sent.
fn sent(client: &mut Client) -> Vec<(u32, usize)> {
    let output = client.output();
    output
        .iter()
        .filter(|frame| frame.kind == Kind::DATA)
        .map(|frame| (frame.stream, frame.payload.len()))
        .collect()
}

#[test]
fn the_connection_window_bounds_all_streams_together() {
    let mut client = Client::new();
    client.send(&settings(&[(4, 1 << 20)]));
    for number in [1, 3] {
        let stream = client.request(number);
        respond(&mut client, stream, 50_000);
    }
    let total: usize = sent(&mut client).iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(total, 65_535);
    assert!(!client.connection.wants_write());
    client.send(&window_update(0, 1));
    assert_eq!(sent(&mut client).len(), 1);
    client.send(&window_update(0, 100_000));
    let total: usize = sent(&mut client).iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(total, 100_000 - 65_536);
    assert_eq!(client.connection.open_streams(), 0);
}

#[test]
fn a_stream_without_window_does_not_hold_up_others() {
    let mut client = Client::new();
    client.send(&settings(&[(4, 0)]));
    let stuck = client.request(1);
    respond(&mut client, stuck, 10);
    let lucky = client.request(3);
    respond(&mut client, lucky, 10);
    client.send(&window_update(3, 100));
    assert_eq!(sent(&mut client), [(3, 10)]);
    assert_eq!(client.connection.queued(stuck), 10);
    client.send(&window_update(1, 4));
    assert_eq!(sent(&mut client), [(1, 4)]);
    client.send(&window_update(1, 6));
    assert_eq!(sent(&mut client), [(1, 6)]);
    assert_eq!(client.connection.open_streams(), 0);
}

// RFC 9113 section 6.9.2
#[test]
fn settings_move_the_windows_of_open_streams_also_below_zero() {
    let mut client = Client::new();
    let stream = client.request(1);
    respond(&mut client, stream, 100_000);
    assert_eq!(sent(&mut client).iter().map(|(_, bytes)| bytes).sum::<usize>(), 65_535);
    client.send(&[window_update(0, 1 << 20), settings(&[(4, 5)])].concat());
    assert!(sent(&mut client).is_empty());
    client.send(&window_update(1, 65_530));
    assert!(sent(&mut client).is_empty(), "the window is zero again");
    client.send(&settings(&[(4, 12)]));
    assert_eq!(sent(&mut client), [(1, 7)]);
}

#[test]
fn streams_take_turns_of_one_frame() {
    let mut client = Client::new();
    client.send(&window_update(0, 1 << 20));
    for number in [1, 3, 5] {
        let stream = client.request(number);
        respond(&mut client, stream, 40_000);
    }
    let order: Vec<u32> = sent(&mut client).iter().map(|(stream, _)| *stream).collect();
    assert_eq!(order, [1, 3, 5, 1, 3, 5, 1, 3, 5]);
}

#[test]
fn a_budget_pauses_and_nothing_is_lost() {
    let mut client = Client::new();
    client.send(&window_update(0, 1 << 20));
    let stream = client.request(1);
    respond(&mut client, stream, 60_000);
    let mut bytes = Vec::new();
    while client.connection.wants_write() {
        let part = client.bytes_up_to(1000);
        assert!(part.len() <= 1000 + 16_384 + 100, "{}", part.len());
        bytes.extend(part);
    }
    let body: usize = super::super::testing::frames(&bytes)
        .iter()
        .filter(|f| f.kind == Kind::DATA)
        .map(|f| f.payload.len())
        .sum();
    assert_eq!(body, 60_000);
}

#[test]
fn a_peer_that_allows_larger_frames_gets_them() {
    let mut client = Client::new();
    client.send(&settings(&[(5, 50_000)]));
    let stream = client.request(1);
    respond(&mut client, stream, 60_000);
    assert_eq!(sent(&mut client), [(1, 50_000), (1, 10_000)]);
}

#[test]
fn a_stream_is_writable_when_its_queue_falls_to_the_low_water_mark() {
    let mut client = Client::with(Config { send_low_water: 100, ..Config::default() });
    client.send(&settings(&[(4, 0)]));
    let stream = client.request(1);
    client.connection.send_headers(stream, ok(), false).unwrap();
    client.connection.send_data(stream, Bytes::from(vec![0; 301]), false).unwrap();
    client.output();
    client.send(&window_update(1, 200));
    client.output();
    assert!(client.events().is_empty(), "101 bytes wait");
    client.send(&window_update(1, 1));
    client.output();
    assert!(matches!(client.events()[..], [Event::Writable { stream: told }] if told == stream));
    client.send(&window_update(1, 1));
    client.output();
    assert!(client.events().is_empty(), "told once");
}

#[test]
fn a_complete_response_that_is_not_taken_is_reset_and_an_open_one_is_not() {
    // CVE-2019-9517
    const PATIENCE: Duration = Duration::from_secs(60);
    let mut client = Client::new();
    client.send(&settings(&[(4, 0)]));
    let (answer, watch) = (client.request(1), client.request(3));
    assert_eq!(client.connection.deadline(), None);
    respond(&mut client, answer, 10);
    client.connection.send_headers(watch, ok(), false).unwrap();
    client.connection.send_data(watch, Bytes::from_static(b"event"), false).unwrap();
    client.output();
    client.pass(PATIENCE / 2);
    client.send(&window_update(1, 4));
    client.output();
    client.pass(PATIENCE - Duration::from_secs(1));
    assert_eq!(client.connection.queued(answer), 6, "timed from the last progress");
    client.pass(Duration::from_secs(1));
    let frames = client.output();
    assert!(
        matches!(&frames[..], [reset] if reset.kind == Kind::RST_STREAM && reset.stream == 1),
        "{frames:?}"
    );
    assert_eq!((client.connection.queued(answer), client.connection.queued(watch)), (0, 5));
    let next = client.connection.deadline();
    assert_eq!(next, Some(client.now + PATIENCE), "no busy loop while the watch waits");
    client.pass(PATIENCE);
    assert_eq!(client.connection.queued(watch), 5);
    client.send(&rst_stream(3, ErrorCode::CANCEL));
    assert_eq!(client.connection.deadline(), None);
}

#[test]
fn a_peer_that_overruns_a_window_is_stopped() {
    let config = Config { initial_window: 65_535, connection_window: 65_535 + 20_000, ..Config::default() };
    let mut client = Client::with(config);
    client.send(&request(1, 0));
    for _ in 0..4 {
        client.send(&data(1, 0, &[0; 16_383]));
    }
    client.events();
    client.send(&data(1, 0, &[0; 4]));
    let output = client.output();
    let reset = (Kind::RST_STREAM, 1, ErrorCode::FLOW_CONTROL_ERROR.as_u32());
    assert_eq!((output[0].kind, output[0].stream, output[0].u32_at(0)), reset, "the stream's window");
    assert_eq!((output[1].kind, output[1].stream), (Kind::WINDOW_UPDATE, 0), "what it held comes back");

    // Without consuming the connection's window fills up too.
    for number in [3, 5] {
        client.send(&request(number, 0));
        for _ in 0..3 {
            client.send(&data(number, 0, &[0; 16_000]));
        }
    }
    assert_eq!(client.closed_with(), ErrorCode::FLOW_CONTROL_ERROR, "the connection's window");
}

#[test]
fn consumed_bytes_come_back_in_few_updates() {
    let mut client = Client::new();
    client.send(&request(1, 0));
    let (stream, ..) = client.requested();
    let mut updates = (0, 0);
    for _ in 0..200 {
        client.send(&data(1, 0, &[0; 16_000]));
        client.events();
        client.connection.consume(stream, 16_000);
        for frame in client.output() {
            assert_eq!(frame.kind, Kind::WINDOW_UPDATE);
            match frame.stream {
                0 => updates.0 += 1,
                _ => updates.1 += 1,
            }
        }
    }
    assert_eq!(updates, (6, 66));
}

#[test]
fn bytes_that_nobody_consumes_come_back_when_the_stream_ends() {
    let mut client = Client::with(Config { connection_window: 65_535, ..Config::default() });
    for number in (1..100).step_by(2) {
        client.send(&request(number, 0));
        let (stream, ..) = client.requested();
        client.send(&data(number, flag::END_STREAM, &[0; 16_000]));
        client.events();
        client.connection.send_headers(stream, ok(), true).unwrap();
        client.output();
    }
    assert_eq!(client.connection.open_streams(), 0);
}

#[test]
fn padding_counts_and_comes_back_at_once() {
    let mut client = Client::with(Config { connection_window: 65_535, ..Config::default() });
    client.send(&request(1, 0));
    let mut updates = 0;
    for _ in 0..2000 {
        let mut payload = vec![255];
        payload.resize(257, 0);
        payload[1] = b'x';
        client.send(&data(1, flag::PADDED, &payload));
        updates += client.output().len();
        assert!(!client.connection.is_done());
    }
    assert!(updates > 0);
}

#[test]
fn bytes_for_closed_streams_come_back() {
    let mut client = Client::with(Config { connection_window: 65_535, ..Config::default() });
    client.send(&request(1, 0));
    let (stream, ..) = client.requested();
    client.connection.reset(stream, ErrorCode::CANCEL);
    client.output();
    for _ in 0..100 {
        client.send(&data(1, 0, &[0; 16_000]));
        client.output();
    }
    assert!(!client.connection.is_done());
}

// RFC 9113 section 6.9.3
#[test]
fn a_smaller_window_of_ours_holds_from_the_acknowledgement_on() {
    let mut client = Client::silent(Config { initial_window: 100, ..Config::default() });
    client.send(&[&PREFACE[..], &settings(&[]), &request(1, 0), &data(1, 0, &[0; 16_000])].concat());
    client.requested();
    assert!(matches!(client.events()[..], [Event::Data { .. }]), "the client cannot know of our window yet");
    client.send(&[frame(Kind::SETTINGS, flag::ACK, 0, &[]), request(3, 0)].concat());
    client.requested();
    client.output();
    client.send(&data(3, 0, &[0; 101]));
    assert_eq!(client.reset_with(3), ErrorCode::FLOW_CONTROL_ERROR);
}
