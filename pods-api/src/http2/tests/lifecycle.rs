//! How a connection begins, rests, is shut down and ends.

use std::time::Duration;

use bytes::Bytes;

use super::super::frame::{Kind, PREFACE, flag};
use super::super::testing::{Client, frame, handshake, request, settings};
use super::super::{Config, ErrorCode, Event, FieldBlock};

const SECOND: Duration = Duration::from_secs(1);

fn ok() -> FieldBlock {
    FieldBlock::new(&[(":status", "200")])
}

#[test]
fn nothing_is_sent_before_the_preface_then_settings_and_the_acknowledgement() {
    let mut client = Client::silent(Config::default());
    client.send(&PREFACE[..10]);
    assert!(!client.connection.wants_write());
    client.send(&[&PREFACE[10..], &settings(&[])].concat());
    let output = client.output();
    let shape: Vec<_> = output.iter().map(|frame| (frame.kind, frame.flags)).collect();
    assert_eq!(shape, [(Kind::SETTINGS, 0), (Kind::WINDOW_UPDATE, 0), (Kind::SETTINGS, flag::ACK)]);
}

// RFC 9113 section 6.5.3
#[test]
fn a_handshake_that_takes_too_long_ends_the_connection() {
    for beginning in [&b""[..], &PREFACE[..], &[&PREFACE[..], &settings(&[])].concat()] {
        let mut client = Client::silent(Config::default());
        client.send(beginning);
        assert_eq!(client.connection.deadline(), Some(client.now + 10 * SECOND));
        client.pass(9 * SECOND);
        assert!(!client.connection.is_done());
        client.pass(SECOND);
        assert_eq!(client.closed_with(), ErrorCode::SETTINGS_TIMEOUT);
        assert_eq!(client.connection.deadline(), None);
    }
    let mut client = Client::silent(Config::default());
    client.send(&handshake());
    assert_eq!(client.connection.deadline(), None, "an idle connection waits for ever");
}

#[test]
fn a_field_block_that_takes_too_long_ends_the_connection() {
    let mut client = Client::new();
    client.send(&frame(Kind::HEADERS, 0, 1, &[0x83]));
    client.pass(9 * SECOND);
    client.send(&frame(Kind::CONTINUATION, 0, 1, &[0x86]));
    client.pass(SECOND);
    assert_eq!(client.closed_with(), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn an_idle_connection_is_drained_when_it_may_not_idle() {
    let mut client = Client::with(Config { idle_timeout: Some(60 * SECOND), ..Config::default() });
    client.pass(30 * SECOND);
    let stream = client.request(1);
    assert_eq!(client.connection.deadline(), None);
    client.pass(100 * SECOND);
    client.connection.send_headers(stream, ok(), true).unwrap();
    client.output();
    assert_eq!(client.connection.deadline(), Some(client.now + 60 * SECOND));
    client.pass(60 * SECOND);
    assert_eq!(client.output()[0].kind, Kind::GOAWAY);
    client.pass(SECOND);
    assert_eq!(client.closed_with(), ErrorCode::NO_ERROR);
}

// RFC 9113 section 6.8
#[test]
fn a_graceful_shutdown_has_two_stages_and_waits_for_streams() {
    let mut client = Client::new();
    let early = client.request(1);
    client.connection.shutdown(client.now);
    client.connection.shutdown(client.now);
    let output = client.output();
    assert_eq!((output[0].kind, output[0].u32_at(0), output[0].u32_at(4)), (Kind::GOAWAY, 0x7fff_ffff, 0));
    assert_eq!((output.len(), output[1].kind), (2, Kind::PING));

    let crossing = client.request(3);
    client.send(&frame(Kind::PING, flag::ACK, 0, &output[1].payload));
    let output = client.output();
    assert_eq!((output[0].kind, output[0].u32_at(0), output[0].u32_at(4)), (Kind::GOAWAY, 3, 0));
    client.send(&request(5, flag::END_STREAM));
    assert_eq!(client.reset_with(5), ErrorCode::REFUSED_STREAM);

    for stream in [early, crossing] {
        client.connection.send_headers(stream, ok(), false).unwrap();
        client.connection.send_data(stream, Bytes::from_static(b"x"), true).unwrap();
        assert!(!client.connection.is_done());
    }
    assert_eq!(client.output().len(), 4);
    assert!(client.connection.is_done());
    assert!(matches!(client.events()[..], [Event::ConnectionClosed { code: ErrorCode::NO_ERROR, .. }]));
}

#[test]
fn a_graceful_shutdown_does_not_wait_long_for_its_ping() {
    let mut client = Client::new();
    client.connection.shutdown(client.now);
    client.output();
    client.pass(SECOND / 2);
    assert!(!client.connection.is_done());
    client.pass(SECOND / 2);
    assert_eq!(client.closed_with(), ErrorCode::NO_ERROR);
}

#[test]
fn a_shutdown_before_the_preface_is_immediate() {
    let mut client = Client::silent(Config::default());
    client.connection.shutdown(client.now);
    assert!(client.connection.is_done() && !client.connection.wants_write());
}

#[test]
fn a_client_that_goes_away_still_gets_its_answers() {
    let mut client = Client::new();
    let stream = client.request(1);
    client.send(&frame(Kind::GOAWAY, 0, 0, &[0; 8]));
    assert_eq!(client.output()[0].kind, Kind::GOAWAY);
    client.connection.send_headers(stream, ok(), true).unwrap();
    assert!(client.output()[0].ends_stream());
    assert!(client.connection.is_done());

    let mut client = Client::new();
    client.send(&[frame(Kind::GOAWAY, 0, 0, &[0; 8]), request(1, flag::END_STREAM)].concat());
    assert_eq!(client.closed_with(), ErrorCode::NO_ERROR);
}

#[test]
fn the_end_of_input_ends_everything() {
    let mut client = Client::new();
    let stream = client.request(1);
    client.connection.send_headers(stream, ok(), false).unwrap();
    client.connection.receive_end(client.now);
    client.connection.receive_end(client.now);
    assert!(client.connection.is_done());
    assert!(matches!(client.events()[..], [Event::ConnectionClosed { code: ErrorCode::NO_ERROR, .. }]));
    assert!(client.output().is_empty());
}

// RFC 9113 section 6.7
#[test]
fn a_ping_is_answered_before_anything_else() {
    let mut client = Client::new();
    let stream = client.request(1);
    client.connection.send_headers(stream, ok(), true).unwrap();
    client.send(&frame(Kind::PING, 0, 0, b"8 bytes!"));
    let output = client.output();
    assert_eq!((output[0].kind, output[0].flags), (Kind::PING, flag::ACK));
    assert_eq!(output[0].payload, b"8 bytes!");
    client.send(&frame(Kind::PING, flag::ACK, 0, b"whatever"));
    assert!(client.output().is_empty());
}
