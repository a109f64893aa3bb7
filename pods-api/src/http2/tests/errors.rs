//! Which frames are errors, with which code, and whether of the stream or of the connection (RFC 9113 sections 5 and
//! 6).

use super::super::frame::{Kind, PREFACE, flag};
use super::super::testing::{self, Client, block, data, frame, request, rst_stream, settings, window_update};
use super::super::{Config, ErrorCode, Event};

const PROTOCOL_ERROR: ErrorCode = ErrorCode::PROTOCOL_ERROR;
const FRAME_SIZE_ERROR: ErrorCode = ErrorCode::FRAME_SIZE_ERROR;
const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode::FLOW_CONTROL_ERROR;
const STREAM_CLOSED: ErrorCode = ErrorCode::STREAM_CLOSED;

/// Each is sent on a connection where stream 1 is open, 3 half-closed (remote), 5 closed by its END_STREAM on both
/// sides, and 7 idle.
#[test]
fn connection_errors() {
    let priority_block = [&[0, 0, 0, 0, 16][..], &block(testing::REQUEST)].concat();
    let cases: Vec<(&str, Vec<u8>, ErrorCode)> = vec![
        ("4.2 too large", data(1, 0, &[0; 16_385]), FRAME_SIZE_ERROR),
        (
            "4.3 undecodable",
            frame(Kind::HEADERS, flag::END_HEADERS, 7, &[0x80]),
            ErrorCode::COMPRESSION_ERROR,
        ),
        ("5.1 DATA on an idle stream", data(7, 0, b"x"), PROTOCOL_ERROR),
        ("5.1 RST_STREAM on an idle stream", rst_stream(7, ErrorCode::CANCEL), PROTOCOL_ERROR),
        ("5.1 WINDOW_UPDATE on an idle stream", window_update(7, 1), PROTOCOL_ERROR),
        ("5.1 HEADERS on a closed stream", request(5, flag::END_STREAM), STREAM_CLOSED),
        ("5.1.1 an even stream", request(8, flag::END_STREAM), PROTOCOL_ERROR),
        ("5.1.1 DATA on an even stream", data(2, 0, b"x"), PROTOCOL_ERROR),
        ("6.1 DATA without a stream", data(0, 0, b"x"), PROTOCOL_ERROR),
        ("6.1 padding of the whole frame", data(1, flag::PADDED, &[2, 0]), PROTOCOL_ERROR),
        ("6.1 no padding length", data(1, flag::PADDED, &[]), FRAME_SIZE_ERROR),
        ("6.2 HEADERS without a stream", request(0, 0), PROTOCOL_ERROR),
        (
            "6.2 padding",
            frame(Kind::HEADERS, flag::PADDED | flag::END_HEADERS, 7, &[9, 0x82]),
            PROTOCOL_ERROR,
        ),
        ("6.2 half a priority", frame(Kind::HEADERS, 0x24, 7, &priority_block[..4]), FRAME_SIZE_ERROR),
        ("6.3 PRIORITY without a stream", frame(Kind::PRIORITY, 0, 0, &[0; 5]), PROTOCOL_ERROR),
        ("6.4 RST_STREAM without a stream", rst_stream(0, ErrorCode::CANCEL), PROTOCOL_ERROR),
        ("6.4 size", frame(Kind::RST_STREAM, 0, 1, &[0; 3]), FRAME_SIZE_ERROR),
        ("6.5 SETTINGS on a stream", frame(Kind::SETTINGS, 0, 1, &[]), PROTOCOL_ERROR),
        ("6.5 size", frame(Kind::SETTINGS, 0, 0, &[0; 7]), FRAME_SIZE_ERROR),
        ("6.5 ACK with a payload", frame(Kind::SETTINGS, flag::ACK, 0, &[0; 6]), FRAME_SIZE_ERROR),
        ("6.5 an ACK of nothing", frame(Kind::SETTINGS, flag::ACK, 0, &[]), PROTOCOL_ERROR),
        ("6.5.2 ENABLE_PUSH", settings(&[(2, 2)]), PROTOCOL_ERROR),
        ("6.5.2 INITIAL_WINDOW_SIZE", settings(&[(4, 1 << 31)]), FLOW_CONTROL_ERROR),
        ("6.5.2 MAX_FRAME_SIZE", settings(&[(5, 16_383)]), PROTOCOL_ERROR),
        ("6.6 PUSH_PROMISE", frame(Kind::PUSH_PROMISE, flag::END_HEADERS, 1, &[0, 0, 0, 2]), PROTOCOL_ERROR),
        ("6.7 PING on a stream", frame(Kind::PING, 0, 1, &[0; 8]), PROTOCOL_ERROR),
        ("6.7 size", frame(Kind::PING, 0, 0, &[0; 7]), FRAME_SIZE_ERROR),
        ("6.8 GOAWAY on a stream", frame(Kind::GOAWAY, 0, 1, &[0; 8]), PROTOCOL_ERROR),
        ("6.8 size", frame(Kind::GOAWAY, 0, 0, &[0; 7]), FRAME_SIZE_ERROR),
        ("6.9 size", frame(Kind::WINDOW_UPDATE, 0, 1, &[0; 5]), FRAME_SIZE_ERROR),
        ("6.9 zero on the connection", window_update(0, 0), PROTOCOL_ERROR),
        ("6.9.1 overflow of the connection's window", window_update(0, 0x7fff_ffff), FLOW_CONTROL_ERROR),
        (
            "6.9.2 overflow by SETTINGS",
            [window_update(1, 9), settings(&[(4, 0x7fff_ffff)])].concat(),
            FLOW_CONTROL_ERROR,
        ),
        ("6.10 CONTINUATION alone", frame(Kind::CONTINUATION, flag::END_HEADERS, 1, &[0x82]), PROTOCOL_ERROR),
        (
            "6.10 CONTINUATION of another stream",
            [frame(Kind::HEADERS, 0, 7, &[0x82]), frame(Kind::CONTINUATION, flag::END_HEADERS, 9, &[0x82])]
                .concat(),
            PROTOCOL_ERROR,
        ),
        (
            "6.10 a field block interrupted",
            [frame(Kind::HEADERS, 0, 7, &[0x82]), frame(Kind::PING, 0, 0, &[0; 8])].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "5.5 a field block interrupted by an unknown frame",
            [frame(Kind::HEADERS, 0, 7, &[0x82]), frame(Kind(0xbe), 0, 7, &[])].concat(),
            PROTOCOL_ERROR,
        ),
        ("5.1.1 a smaller number", [request(9, 0), request(7, 0)].concat(), PROTOCOL_ERROR),
    ];
    for (rule, bytes, code) in cases {
        let mut client = client_with_streams();
        client.send(&bytes);
        assert_eq!(client.closed_with(), code, "{rule}");
        client.send(&request(101, flag::END_STREAM));
        assert!(
            client.events().is_empty() && client.output().is_empty(),
            "{rule}: nothing is read after a GOAWAY"
        );
    }
}

/// As above, but only the stream suffers.
#[test]
fn stream_errors() {
    let trailers =
        |fields: &[(&str, &str)], flags| frame(Kind::HEADERS, flag::END_HEADERS | flags, 1, &block(fields));
    let cases: Vec<(&str, Vec<u8>, u32, ErrorCode)> = vec![
        ("5.1 DATA after END_STREAM", data(3, 0, b"x"), 3, STREAM_CLOSED),
        ("5.1 HEADERS after END_STREAM", request(3, flag::END_STREAM), 3, STREAM_CLOSED),
        ("5.1 DATA on a closed stream", data(5, 0, b"x"), 5, STREAM_CLOSED),
        ("6.3 size", frame(Kind::PRIORITY, 0, 1, &[0; 4]), 1, FRAME_SIZE_ERROR),
        ("6.9 zero", window_update(1, 0), 1, PROTOCOL_ERROR),
        ("6.9.1 overflow", window_update(1, 0x7fff_ffff), 1, FLOW_CONTROL_ERROR),
        ("8.1 trailers without END_STREAM", trailers(&[("a", "b")], 0), 1, PROTOCOL_ERROR),
        (
            "8.1 trailers with a pseudo-header field",
            trailers(&[(":path", "/")], flag::END_STREAM),
            1,
            PROTOCOL_ERROR,
        ),
        ("8.2.1 upper case in trailers", trailers(&[("A", "b")], flag::END_STREAM), 1, PROTOCOL_ERROR),
        (
            "8.3.1 no method",
            frame(Kind::HEADERS, flag::END_HEADERS, 7, &block(&[(":path", "/"), (":scheme", "http")])),
            7,
            PROTOCOL_ERROR,
        ),
        (
            "8.1.1 content-length without a body",
            frame(
                Kind::HEADERS,
                flag::END_HEADERS | flag::END_STREAM,
                7,
                &block(&[testing::REQUEST, &[("content-length", "1")]].concat()),
            ),
            7,
            PROTOCOL_ERROR,
        ),
    ];
    for (rule, bytes, stream, code) in cases {
        let mut client = client_with_streams();
        client.send(&bytes);
        assert_eq!(client.reset_with(stream), code, "{rule}");
        let events = client.events();
        if stream <= 3 {
            assert!(
                matches!(events[..], [Event::Reset { stream: told, code: why }] if told.number() == stream && why == code),
                "{rule}: {events:?}"
            );
        } else {
            assert!(events.is_empty(), "{rule}: {events:?}");
        }
        client.send(&request(9, flag::END_STREAM));
        assert_eq!(client.requested().0.number(), 9, "{rule}: the connection goes on");
    }
}

fn client_with_streams() -> Client {
    let mut client = Client::new();
    client.send(&request(1, 0));
    client.send(&request(3, flag::END_STREAM));
    client.requested();
    client.requested();
    let ended = client.request(5);
    client
        .connection
        .send_headers(ended, super::super::FieldBlock::new(&[(":status", "200")]), true)
        .unwrap();
    client.output();
    client
}

// RFC 9113 section 5.1: frames that were on their way when we reset the stream, or that close it late
#[test]
fn late_frames_on_closed_streams_are_ignored() {
    let mut client = client_with_streams();
    client.send(&data(3, 0, b"x"));
    assert_eq!(client.reset_with(3), STREAM_CLOSED);
    client.events();
    let late = [
        data(3, 0, b"more"),
        data(3, flag::END_STREAM, b""),
        request(3, flag::END_STREAM),
        window_update(3, 1),
        rst_stream(3, ErrorCode::CANCEL),
        window_update(5, 1),
        rst_stream(5, ErrorCode::CANCEL),
        frame(Kind::PRIORITY, 0, 5, &[0; 5]),
        frame(Kind::PRIORITY, 0, 101, &[0; 5]),
    ];
    client.send(&late.concat());
    assert!(client.events().is_empty() && client.output().is_empty());
    assert_eq!(client.request(7).number(), 7);
}

// RFC 9113 sections 4.1 and 5.5
#[test]
fn unknown_frames_flags_and_settings_are_ignored() {
    let mut client = Client::new();
    client.send(&frame(Kind(0x42), 0xff, 0, b"whatever"));
    client.send(&frame(Kind(0x43), 0xff, 9, b"whatever"));
    client.send(&settings(&[(0xffff, 1), (0x9, 1)]));
    assert_eq!(
        client.output(),
        [testing::Frame { kind: Kind::SETTINGS, flags: flag::ACK, stream: 0, payload: vec![] }]
    );
    let mut ping = frame(Kind::PING, 0xfe, 0, b"12345678");
    ping[5] |= 0x80;
    client.send(&ping);
    assert_eq!(client.output()[0].payload, b"12345678");
}

// RFC 9113 section 3.4
#[test]
fn a_wrong_beginning_is_refused() {
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..], // TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX",
        b"PRI * HTTP/1.1\r\n\r\n",
        b"get / HTTP/1.1\r\n",
        b"\0",
    ] {
        let mut client = Client::silent(Config::default());
        client.send(bytes);
        assert_eq!(client.closed_with(), PROTOCOL_ERROR, "{bytes:?}");
    }
    for first in [request(1, 0), frame(Kind::SETTINGS, flag::ACK, 0, &[]), frame(Kind(0x42), 0, 0, &[])] {
        let mut client = Client::silent(Config::default());
        client.send(&[&PREFACE[..], &first].concat());
        assert_eq!(client.closed_with(), PROTOCOL_ERROR, "SETTINGS come first");
    }
}

#[test]
fn a_client_of_http_1_gets_an_answer_it_can_read() {
    for request in
        ["GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\n", "PUT / HTTP/1.1\r\n", "PROPFIND / HTTP/1.1\r\n"]
    {
        let mut client = Client::silent(Config::default());
        for byte in request.as_bytes() {
            client.send(&[*byte]);
        }
        let answer = String::from_utf8(client.bytes()).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 505 "), "{answer}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{answer}");
        assert!(body.contains("gRPC over HTTP/2"), "{answer}");
        assert!(client.connection.is_done());
        assert!(matches!(
            client.events()[..],
            [Event::ConnectionClosed { code: ErrorCode::HTTP_1_1_REQUIRED, .. }]
        ));
    }
}
