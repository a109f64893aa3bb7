//! Tests of the HTTP/2 connection against frames written by hand.

use super::*;

#[derive(Debug, PartialEq)]
enum Seen {
    Message(u64, usize),
    End(u64, u32, String),
}

fn feed(connection: &mut Connection, bytes: &[u8]) -> anyhow::Result<Vec<Seen>> {
    let mut seen = Vec::new();
    connection.receive(bytes, &mut |event| {
        seen.push(match event {
            Event::Message { tag, length, .. } => Seen::Message(tag, length),
            Event::End { tag, status, message } => Seen::End(tag, status, message.to_owned()),
        });
    })?;
    Ok(seen)
}

/// HEADERS, one 3-byte message cut into two DATA frames (the second one padded), trailers over CONTINUATION.
fn response(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, frame::HEADERS, frame::FLAG_END_HEADERS, stream, &[&[0x88]]);
    frame::write(&mut out, frame::DATA, 0, stream, &[&[0, 0, 0, 0, 3, b'a']]);
    frame::write(&mut out, frame::DATA, frame::FLAG_PADDED, stream, &[&[4], b"bc", &[0; 4]]);
    let trailers = b"\x00\x0bgrpc-status\x010\x00\x0cgrpc-message\x08all%20ok";
    let (start, rest) = trailers.split_at(20);
    frame::write(&mut out, frame::HEADERS, frame::FLAG_END_STREAM, stream, &[start]);
    frame::write(&mut out, frame::CONTINUATION, frame::FLAG_END_HEADERS, stream, &[rest]);
    out
}

#[test]
fn response_is_understood_however_it_is_cut() {
    let bytes = response(1);
    for step in 1..=bytes.len() {
        let mut connection = Connection::new(Settings::stock());
        assert!(connection.start(&Call::list(), 42));
        let mut seen = Vec::new();
        for chunk in bytes.chunks(step) {
            seen.extend(feed(&mut connection, chunk).unwrap());
        }
        assert_eq!(seen, [Seen::Message(42, 3), Seen::End(42, 0, "all ok".to_owned())], "step {step}");
    }
}

#[test]
fn windows_are_refilled_and_an_overrun_is_noticed() {
    let mut connection = Connection::new(Settings::stock());
    connection.start(&Call::watch(), 1);
    connection.output().clear();
    let mut chunk = Vec::new();
    frame::write(&mut chunk, frame::DATA, 0, 1, &[&[0; 16_000]]);
    for _ in 0..100 {
        feed(&mut connection, &chunk).unwrap();
    }
    let updates = connection.output().chunks(13).map(|update| (update[3], update[8])).collect::<Vec<_>>();
    assert_eq!(updates.iter().filter(|(kind, _)| *kind != frame::WINDOW_UPDATE).count(), 0);
    assert_eq!(updates.iter().filter(|(_, stream)| *stream == 0).count(), 33, "every 48,000 bytes");
    assert_eq!(updates.iter().filter(|(_, stream)| *stream == 1).count(), 33);

    let mut connection = Connection::new(Settings { window_bytes: 65_535, ..Settings::stock() });
    connection.receive_window = 15_999;
    assert!(feed(&mut connection, &chunk).is_err());
}

#[test]
fn peer_limits_hold_back_calls() {
    let mut connection = Connection::new(Settings::stock());
    let mut settings = Vec::new();
    frame::write_settings(&mut settings, &[(frame::SETTINGS_MAX_CONCURRENT_STREAMS, 1)]);
    feed(&mut connection, &settings).unwrap();
    assert!(connection.start(&Call::list(), 1));
    assert!(!connection.start(&Call::list(), 2), "one stream at a time");
    feed(&mut connection, &response(1)).unwrap();
    connection.send_window = 4;
    assert!(!connection.start(&Call::list(), 3), "the connection window is used up");
    let mut update = Vec::new();
    frame::write_window_update(&mut update, 0, 100);
    feed(&mut connection, &update).unwrap();
    assert!(connection.start(&Call::list(), 3));
}

#[test]
fn resets_and_missing_status_become_grpc_codes() {
    let mut connection = Connection::new(Settings::stock());
    for tag in 0..3 {
        connection.start(&Call::list(), tag);
    }
    let mut bytes = Vec::new();
    frame::write(&mut bytes, frame::RST_STREAM, 0, 1, &[&7u32.to_be_bytes()]);
    frame::write(&mut bytes, frame::HEADERS, frame::FLAG_END_HEADERS | frame::FLAG_END_STREAM, 3, &[&[0x88]]);
    frame::write(&mut bytes, frame::GOAWAY, 0, 0, &[&3u32.to_be_bytes(), &0u32.to_be_bytes()]);
    let seen = feed(&mut connection, &bytes).unwrap();
    let codes: Vec<_> = seen.iter().map(|seen| matches!(seen, Seen::End(_, code, _) if *code > 0)).collect();
    assert_eq!(codes, [true; 3], "{seen:?}");
    assert!(!connection.start(&Call::list(), 9), "no new calls after GOAWAY");
}

#[test]
fn ping_is_answered_and_settings_are_acknowledged() {
    let mut connection = Connection::new(Settings::stock());
    connection.output().clear();
    let mut bytes = Vec::new();
    frame::write_settings(&mut bytes, &[]);
    frame::write(&mut bytes, frame::PING, 0, 0, &[b"12345678"]);
    feed(&mut connection, &bytes).unwrap();
    let mut expected = Vec::new();
    frame::write(&mut expected, frame::SETTINGS, frame::FLAG_ACK, 0, &[]);
    frame::write(&mut expected, frame::PING, frame::FLAG_ACK, 0, &[b"12345678"]);
    assert_eq!(*connection.output(), expected);
}
