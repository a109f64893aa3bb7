//! Requests and responses that obey the rules.

use bytes::Bytes;

use super::super::frame::{Kind, flag};
use super::super::testing::{Client, REQUEST, block, data, frame, request};
use super::super::{Config, ErrorCode, Event, FieldBlock, StreamClosed};
use crate::transport::Outgoing;

fn ok() -> FieldBlock {
    FieldBlock::new(&[(":status", "200"), ("content-type", "application/grpc")])
}

fn trailers() -> FieldBlock {
    FieldBlock::new(&[("grpc-status", "0")])
}

#[test]
fn a_unary_exchange_is_three_frames_in_one_chunk() {
    let mut client = Client::new();
    client.send(&[request(1, 0), data(1, flag::END_STREAM, b"\0\0\0\0\x02hi")].concat());
    let (stream, head, end_stream) = client.requested();
    assert!(!end_stream);
    assert_eq!((head.method(), head.path()), (&b"POST"[..], &b"/v1alpha1.Pods/GetPod"[..]));
    assert_eq!(head.field("content-type"), Some(&b"application/grpc"[..]));
    match client.connection.next_event() {
        Some(Event::Data { stream: told, data, end_stream: true }) => {
            assert_eq!((told, &data[..]), (stream, &b"\0\0\0\0\x02hi"[..]));
            client.connection.consume(stream, data.len());
        }
        other => panic!("no data: {other:?}"),
    }
    client.connection.send_headers(stream, ok(), false).unwrap();
    client.connection.send_data(stream, Bytes::from_static(b"\0\0\0\0\x05"), false).unwrap();
    client.connection.send_data(stream, Bytes::from_static(b"hello"), false).unwrap();
    client.connection.send_trailers(stream, trailers()).unwrap();
    assert_eq!((client.connection.queued(stream), client.connection.open_streams()), (10, 1));

    let mut out = Outgoing::default();
    client.connection.gather(&mut out, usize::MAX, client.now);
    assert_eq!(out.chunks().count(), 1);
    let frames = super::super::testing::frames(out.chunks().next().unwrap());
    let shape: Vec<_> = frames.iter().map(|frame| (frame.kind, frame.stream, frame.ends_stream())).collect();
    assert_eq!(shape, [(Kind::HEADERS, 1, false), (Kind::DATA, 1, false), (Kind::HEADERS, 1, true)]);
    assert_eq!(client.fields(&frames[0])[0], (b":status".to_vec(), b"200".to_vec()));
    assert_eq!(frames[1].payload, b"\0\0\0\0\x05hello", "pieces share a frame");
    assert_eq!(client.fields(&frames[2]), [(b"grpc-status".to_vec(), b"0".to_vec())]);
    assert_eq!(client.connection.open_streams(), 0);
    assert!(!client.connection.wants_write() && client.events().is_empty());
}

#[test]
fn a_large_body_is_sent_by_reference() {
    let mut client = Client::new();
    let stream = client.request(1);
    let body = Bytes::from(vec![7; 40_000]);
    client.connection.send_headers(stream, ok(), false).unwrap();
    client.connection.send_data(stream, body.clone(), true).unwrap();
    let mut out = Outgoing::default();
    client.connection.gather(&mut out, usize::MAX, client.now);
    let memory = body.as_ptr_range();
    let shared: usize =
        out.chunks().filter(|chunk| memory.contains(&chunk.as_ptr())).map(|chunk| chunk.len()).sum();
    assert_eq!(shared, body.len());
}

#[test]
fn end_stream_rides_on_whatever_is_last() {
    let mut client = Client::new();
    // A response of headers alone, one with an empty end, one whose end is told after its body was queued.
    let streams = [1, 3, 5].map(|number| client.request(number));
    client.connection.send_headers(streams[0], ok(), true).unwrap();
    client.connection.send_headers(streams[1], ok(), false).unwrap();
    let headers = client.output();
    assert_eq!(headers.iter().map(|frame| frame.ends_stream()).collect::<Vec<_>>(), [true, false]);
    client.connection.send_data(streams[1], Bytes::new(), true).unwrap();
    client.connection.send_headers(streams[2], ok(), false).unwrap();
    client.connection.send_data(streams[2], Bytes::from_static(b"x"), false).unwrap();
    client.connection.send_data(streams[2], Bytes::new(), true).unwrap();
    let shape: Vec<_> = client
        .output()
        .iter()
        .map(|frame| (frame.stream, frame.kind, frame.payload.len(), frame.ends_stream()))
        .collect();
    let headers_len = ok().as_bytes().len();
    assert_eq!(
        shape,
        [(3, Kind::DATA, 0, true), (5, Kind::HEADERS, headers_len, false), (5, Kind::DATA, 1, true)]
    );
    assert_eq!(client.connection.open_streams(), 0);
}

#[test]
fn nothing_is_sent_on_a_stream_that_is_closed_or_ending() {
    let mut client = Client::new();
    let stream = client.request(1);
    client.connection.send_headers(stream, ok(), true).unwrap();
    assert_eq!(client.connection.send_headers(stream, ok(), true), Err(StreamClosed));
    assert_eq!(client.output().len(), 1);
    assert_eq!(client.connection.send_data(stream, Bytes::from_static(b"x"), false), Err(StreamClosed));
    client.connection.consume(stream, 10);
    client.connection.reset(stream, ErrorCode::CANCEL);
    assert!(client.output().is_empty());
}

// RFC 9113 section 8.1
#[test]
fn a_response_before_the_end_of_the_request_stops_the_client() {
    let mut client = Client::new();
    client.send(&request(1, 0));
    let (stream, ..) = client.requested();
    client.connection.send_headers(stream, ok(), true).unwrap();
    let output = client.output();
    assert!(output[0].ends_stream());
    assert_eq!((output[1].kind, output[1].stream, output[1].u32_at(0)), (Kind::RST_STREAM, 1, 0));
    client.send(&data(1, flag::END_STREAM, b"late"));
    assert!(client.events().is_empty() && client.output().is_empty());
}

#[test]
fn a_reset_by_the_owner_drops_what_waits() {
    let mut client = Client::new();
    let stream = client.request(1);
    client.connection.send_headers(stream, ok(), false).unwrap();
    client.connection.send_data(stream, Bytes::from_static(b"x"), false).unwrap();
    client.connection.reset(stream, ErrorCode::CANCEL);
    assert_eq!(client.reset_with(1), ErrorCode::CANCEL);
    assert_eq!(client.connection.open_streams(), 0);
}

#[test]
fn what_waited_on_a_stream_never_leaves_on_another() {
    let mut client = Client::new();
    for number in [1, 3, 5] {
        let stream = client.request(number);
        client.connection.send_headers(stream, ok(), false).unwrap();
        client.connection.send_data(stream, Bytes::from_static(b"secret"), false).unwrap();
        client.send(&super::super::testing::rst_stream(number, ErrorCode::CANCEL));
        client.events();
    }
    let next = client.request(7);
    client.connection.send_headers(next, ok(), true).unwrap();
    let output = client.output();
    assert_eq!(output.len(), 1);
    assert!(output[0].ends_stream() && output[0].stream == 7);
}

#[test]
fn a_reset_by_the_peer_is_told_once() {
    let mut client = Client::new();
    let stream = client.request(1);
    client.connection.send_headers(stream, ok(), false).unwrap();
    let reset = super::super::testing::rst_stream(1, ErrorCode::CANCEL);
    client.send(&[&reset[..], &reset].concat());
    let events = client.events();
    assert!(matches!(events[..], [Event::Reset { stream: told, code: ErrorCode::CANCEL }] if told == stream));
    assert!(client.output().is_empty());
}

// RFC 9113 sections 6.1 and 6.2
#[test]
fn padding_and_priority_are_taken_off() {
    let mut client = Client::new();
    let payload = [&[3][..], &[0x80, 0, 0, 1, 255], &block(REQUEST), &[0; 3]].concat();
    let flags = flag::END_HEADERS | flag::PADDED | flag::PRIORITY;
    client.send(&frame(Kind::HEADERS, flags, 1, &payload));
    client.requested();
    client.send(&data(1, flag::PADDED | flag::END_STREAM, b"\x02hi\0\0"));
    assert!(matches!(&client.events()[..], [Event::Data { data, end_stream: true, .. }] if data == "hi"));
}

// RFC 9113 section 8.1
#[test]
fn trailers_end_a_request() {
    let mut client = Client::new();
    client.send(&[request(1, 0), data(1, 0, b"x")].concat());
    let flags = flag::END_HEADERS | flag::END_STREAM;
    client.send(&frame(Kind::HEADERS, flags, 1, &block(&[("a", "b")])));
    let events = client.events();
    let [_, Event::Data { end_stream: false, .. }, Event::Trailers { fields, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(fields.iter().next(), Some((&b"a"[..], &b"b"[..])));
}

// RFC 9113 section 8.1.1
#[test]
fn content_length_must_match_the_body() {
    let with_length = |length: &str, flags| {
        let fields = [REQUEST, &[("content-length", length)]].concat();
        frame(Kind::HEADERS, flag::END_HEADERS | flags, 1, &block(&fields))
    };
    for (length, body, is_right) in
        [("0", &b""[..], true), ("3", b"abc", true), ("2", b"abc", false), ("4", b"abc", false)]
    {
        let mut client = Client::new();
        client.send(&[with_length(length, 0), data(1, 0, body), data(1, flag::END_STREAM, b"")].concat());
        let reset = client.output().iter().any(|frame| frame.kind == Kind::RST_STREAM);
        assert_eq!(reset, !is_right, "{length} {body:?}");
    }
    let mut client = Client::new();
    let trailers = frame(Kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block(&[("a", "b")]));
    client.send(&[with_length("4", 0), data(1, 0, b"abc"), trailers].concat());
    assert_eq!(client.reset_with(1), ErrorCode::PROTOCOL_ERROR);
}

// GRPC-1, GRPC-2
#[test]
fn any_authority_reaches_the_owner() {
    for authority in ["/run/pods api.sock", "%2Frun%2Fpods.sock", "", "[not:an;authority"] {
        let mut client = Client::new();
        let fields = [&REQUEST[..3], &[(":authority", authority), ("host", authority)]].concat();
        client.send(&frame(Kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block(&fields)));
        let (_, head, _) = client.requested();
        assert_eq!(head.authority(), Some(authority.as_bytes()));
    }
}

// RFC 9113 section 5.1.2
#[test]
fn one_stream_too_many_is_refused_and_the_others_live() {
    let mut client = Client::with(Config { max_concurrent_streams: 2, ..Config::default() });
    let first = client.request(1);
    client.request(3);
    client.send(&request(5, 0));
    assert_eq!(client.reset_with(5), ErrorCode::REFUSED_STREAM);
    client.send(&data(5, flag::END_STREAM, b"on its way"));
    client.connection.send_headers(first, ok(), true).unwrap();
    assert_eq!(client.output().len(), 1);
    assert_eq!(client.request(7).number(), 7);
}

// GRPC-12
#[test]
fn a_header_section_over_the_limit_is_answered_and_the_table_stays_in_step() {
    let config = Config {
        header_list_limit: 1000,
        too_large: FieldBlock::new(&[(":status", "200"), ("grpc-status", "8")]),
        ..Config::default()
    };
    let mut client = Client::with(config);
    let mut large = block(REQUEST);
    // A field of 1,000 bytes that enters the dynamic table, then its index.
    large.extend_from_slice(b"\x40\x05large\x7f\xe9\x06");
    large.extend_from_slice(&[b'x'; 1000]);
    large.extend_from_slice(b"\x40\x01a\x01b");
    client.send(&frame(Kind::HEADERS, flag::END_HEADERS, 1, &large));
    let output = client.output();
    assert_eq!(client.fields(&output[0])[1], (b"grpc-status".to_vec(), b"8".to_vec()));
    assert!(output[0].ends_stream());
    assert_eq!((output[1].kind, output[1].u32_at(0)), (Kind::RST_STREAM, 0));
    assert!(client.events().is_empty());

    let indexed = [block(REQUEST), vec![0xbe]].concat();
    client.send(&frame(Kind::HEADERS, flag::END_HEADERS, 3, &indexed));
    let (_, head, _) = client.requested();
    assert_eq!(head.field("a"), Some(&b"b"[..]));
}

#[test]
fn field_blocks_larger_than_a_frame_go_on_in_continuation_frames() {
    let mut client = Client::new();
    let stream = client.request(1);
    let message = "x".repeat(40_000);
    let fields = FieldBlock::new(&[(":status", "200"), ("grpc-message", &message)]);
    client.connection.send_headers(stream, fields.clone(), true).unwrap();
    let output = client.output();
    let shape: Vec<_> = output.iter().map(|frame| (frame.kind, frame.flags, frame.payload.len())).collect();
    let rest = fields.as_bytes().len() - 2 * 16_384;
    assert_eq!(
        shape,
        [
            (Kind::HEADERS, flag::END_STREAM, 16_384),
            (Kind::CONTINUATION, 0, 16_384),
            (Kind::CONTINUATION, flag::END_HEADERS, rest)
        ]
    );
    let joined: Vec<u8> = output.into_iter().flat_map(|frame| frame.payload).collect();
    assert_eq!(joined, fields.as_bytes());
}

// RFC 7541 section 4.2
#[test]
fn a_smaller_header_table_is_confirmed_in_the_next_block() {
    let mut client = Client::new();
    client.send(&super::super::testing::settings(&[(1, 100)]));
    let stream = client.request(1);
    client.connection.send_headers(stream, ok(), false).unwrap();
    client.connection.send_trailers(stream, trailers()).unwrap();
    let output = client.output();
    assert_eq!((output[1].payload[0], output[2].payload[0]), (0x20, 0x00));
    assert_eq!(output[1].payload[1..], *ok().as_bytes());
}

// RFC 7541 section 4.2: our own smaller table holds from the acknowledgement on
#[test]
fn a_client_that_ignores_our_smaller_table_is_cut() {
    let config = || Config { header_table_size: 100, ..Config::default() };
    let mut client = Client::with(config());
    client.send(&request(1, flag::END_STREAM));
    assert_eq!(client.closed_with(), ErrorCode::COMPRESSION_ERROR);

    let mut client = Client::with(config());
    let confirmed = [&[0x3f, 0x45][..], &block(REQUEST)].concat();
    client.send(&frame(Kind::HEADERS, flag::END_HEADERS, 1, &confirmed));
    client.requested();
}
