//! The examples of RFC 7541 appendix C, and both directions against each other.

use super::*;
use proptest::prelude::*;

/// A field as text.
pub(super) type Field = (Vec<u8>, Vec<u8>);

/// Collects the fields; its mark is how often it had to look at one.
#[derive(Default)]
struct Collect {
    fields: Vec<Field>,
    examined: std::cell::Cell<usize>,
}

impl Sink for Collect {
    type Mark = usize;

    fn examine(&self, _name: &[u8], value: &[u8]) -> usize {
        self.examined.set(self.examined.get() + 1);
        value.len()
    }

    fn field(&mut self, name: &[u8], value: &[u8], mark: usize) {
        assert_eq!(mark, value.len(), "the mark belongs to the field");
        self.fields.push((name.to_vec(), value.to_vec()));
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn decode(decoder: &mut Decoder<usize>, block: &[u8]) -> Result<Vec<Field>, Error> {
    let mut sink = Collect::default();
    decoder.decode(block, &mut sink).map(|()| sink.fields)
}

fn fields(text: &[(&str, &str)]) -> Vec<Field> {
    text.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

// RFC 7541 appendix C.2
#[test]
fn single_fields_decode() {
    for (block, name, value) in [
        ("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", "custom-key", "custom-header"),
        ("040c 2f73 616d 706c 652f 7061 7468", ":path", "/sample/path"),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password", "secret"),
        ("82", ":method", "GET"),
    ] {
        assert_eq!(decode(&mut Decoder::new(4096), &hex(block)), Ok(fields(&[(name, value)])));
    }
}

const REQUESTS: [&[(&str, &str)]; 3] = [
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
];

// RFC 7541 appendices C.3 (plain) and C.4 (Huffman)
#[test]
fn request_sequences_decode_through_one_dynamic_table() {
    for blocks in [
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ] {
        let mut decoder = Decoder::new(4096);
        for (block, expected) in blocks.iter().zip(REQUESTS) {
            assert_eq!(decode(&mut decoder, &hex(block)), Ok(fields(expected)));
        }
    }
}

const COOKIE: &str = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";

// RFC 7541 appendices C.5 (plain) and C.6 (Huffman): a table of 256 bytes, with evictions
#[test]
fn response_sequences_decode_with_evictions() {
    let first = [
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ];
    let mut second = first;
    second[0].1 = "307";
    let third = [
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"),
        ("content-encoding", "gzip"),
        ("set-cookie", COOKIE),
    ];
    for blocks in [
        [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 \
             3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 \
             7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 \
             6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
        ],
        [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
             1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
             e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ],
    ] {
        let mut decoder = Decoder::new(4096);
        // The size update to 256 stands for the setting that the RFC's example has.
        let mut sized = hex("3fe1 01");
        sized.extend(hex(blocks[0]));
        assert_eq!(decode(&mut decoder, &sized), Ok(fields(&first)));
        assert_eq!(decode(&mut decoder, &hex(blocks[1])), Ok(fields(&second)));
        assert_eq!(decode(&mut decoder, &hex(blocks[2])), Ok(fields(&third)));
    }
}

#[test]
fn an_indexed_field_is_not_examined_again() {
    let mut decoder = Decoder::new(4096);
    let mut sink = Collect::default();
    decoder.decode(&hex("4001 6101 62be bebe"), &mut sink).unwrap();
    assert_eq!((sink.fields.len(), sink.examined.get()), (4, 1));
}

#[test]
fn broken_blocks_are_refused() {
    for (block, error) in [
        ("80", Error::Index),              // index zero, section 6.1
        ("be", Error::Index),              // an empty dynamic table, section 2.3.3
        ("7e 01 61", Error::Index),        // the name of no entry
        ("40 01 61", Error::Truncated),    // no value
        ("40 05 61 62", Error::Truncated), // a string longer than the block
        ("ff", Error::Truncated),          // half an integer
        ("ff ff ff ff ff ff", Error::IntegerOverflow),
        ("40 81 ff 01 61", Error::Huffman), // a byte of padding, section 5.2
        ("82 20", Error::SizeUpdate),       // not at the beginning, section 4.2
        ("3f e2 1f", Error::SizeUpdate),    // 4097 bytes, section 6.3
        ("20 20 20", Error::SizeUpdate),    // more than a smallest and a last
    ] {
        assert_eq!(decode(&mut Decoder::new(4096), &hex(block)), Err(error), "{block}");
    }
}

// RFC 7541 section 4.2
#[test]
fn a_lowered_limit_demands_a_size_update() {
    let mut decoder = Decoder::new(4096);
    decoder.set_limit(100);
    assert_eq!(decode(&mut decoder, &hex("82")), Err(Error::SizeUpdate));
    decoder.set_limit(100);
    assert_eq!(decode(&mut decoder, &hex("3f45 82")), Ok(fields(&[(":method", "GET")])), "an update to 100");
    assert_eq!(decode(&mut decoder, &hex("82")), Ok(fields(&[(":method", "GET")])));
    assert_eq!(decode(&mut decoder, &hex("3f46")), Err(Error::SizeUpdate), "an update to 101");
}

#[test]
fn grpc_response_blocks_are_the_bytes_expected() {
    let mut encoder = Encoder::default();
    encoder.field(b":status", b"200");
    encoder.field(b"content-type", b"application/grpc");
    encoder.field(b"grpc-status", b"0");
    assert_eq!(encoder.finish(), b"\x88\x0f\x10\x10application/grpc\x00\x0bgrpc-status\x010");
}

proptest! {
    #[test]
    fn what_is_encoded_decodes(input in prop::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..8)) {
        let mut encoder = Encoder::default();
        for (name, value) in &input {
            encoder.field(name, value);
        }
        prop_assert_eq!(decode(&mut Decoder::new(4096), &encoder.finish()), Ok(input));
    }

    #[test]
    fn no_bytes_make_it_panic(blocks in prop::collection::vec(any::<Vec<u8>>(), 0..20)) {
        let mut decoder = Decoder::new(4096);
        for block in blocks {
            if decode(&mut decoder, &block).is_err() {
                break;
            }
        }
    }
}
