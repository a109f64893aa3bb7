//! Arbitrary field blocks never panic and decode alike in one decoder and in another; what is encoded decodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pods_api::http2::hpack::{Decoder, Encoder, Error, Sink, huffman};

#[derive(Default)]
struct Collect(Vec<(Vec<u8>, Vec<u8>)>);

impl Sink for Collect {
    type Mark = (usize, usize);

    fn examine(&self, name: &[u8], value: &[u8]) -> Self::Mark {
        (name.len(), value.len())
    }

    fn field(&mut self, name: &[u8], value: &[u8], mark: Self::Mark) {
        assert_eq!(mark, (name.len(), value.len()), "the mark belongs to the field");
        // One byte may name four kilobytes: what is kept is bounded here, as the connection does.
        if self.0.len() < 64 {
            self.0.push((name.to_vec(), value.to_vec()));
        }
    }
}

fn decode(decoder: &mut Decoder<(usize, usize)>, block: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
    let mut fields = Collect::default();
    decoder.decode(block, &mut fields).map(|()| fields.0)
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, data)) = data.split_first() else { return };

    // Blocks that follow each other on one connection.
    let mut decoder = Decoder::new(4096);
    for block in data.chunks(usize::from(cut).max(1)) {
        match decode(&mut decoder, block) {
            Ok(fields) => {
                let mut encoder = Encoder::default();
                for (name, value) in &fields {
                    encoder.field(name, value);
                }
                assert_eq!(decode(&mut Decoder::new(4096), &encoder.finish()), Ok(fields));
            }
            Err(_) => break,
        }
        assert!(decoder.held_bytes() < 64 << 10, "{}", decoder.held_bytes());
    }

    let mut literal = vec![0x00, 0x01, b'a'];
    let length = huffman::encoded_len(data);
    if length < 127 {
        literal.push(0x80 | length as u8);
        huffman::encode(data, &mut literal);
        assert_eq!(decode(&mut Decoder::new(4096), &literal), Ok(vec![(b"a".to_vec(), data.to_vec())]));
    }
});
