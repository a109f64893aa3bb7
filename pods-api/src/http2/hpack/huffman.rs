//! The Huffman code of RFC 7541 appendix B.
//!
//! The code is canonical: the 257 lengths determine it, so they are the only table that is written down and all
//! others are computed from them at compile time.

use super::Error;

/// Code length in bits of each byte, and of EOS (256).
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];
const EOS: u16 = 256;
const LONGEST: usize = 30;

/// How many bits the first lookup takes: all text that headers usually hold has codes of 5 to 8 bits.
const FAST_BITS: u32 = 10;

struct Tables {
    /// The code of each symbol, right-aligned.
    codes: [u32; 257],
    /// By the next [`FAST_BITS`] bits: symbol and length, or length 0 if the code is longer.
    fast: [(u8, u8); 1 << FAST_BITS],
    /// Symbols by (length, value), as canonical codes count them.
    sorted: [u16; 257],
    /// Per length: the first code of the next length, left-aligned in 32 bits; codes below it are not longer.
    limits: [u32; LONGEST + 1],
    /// Per length: the index in `sorted` of its first symbol, minus its first code (wrapping).
    offsets: [u32; LONGEST + 1],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut t = Tables {
        codes: [0; 257],
        fast: [(0, 0); 1 << FAST_BITS],
        sorted: [0; 257],
        limits: [0; LONGEST + 1],
        offsets: [0; LONGEST + 1],
    };
    let (mut code, mut index, mut length) = (0u32, 0usize, 1usize);
    while length <= LONGEST {
        code <<= 1;
        t.offsets[length] = (index as u32).wrapping_sub(code);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                t.codes[symbol] = code;
                t.sorted[index] = symbol as u16;
                if length <= FAST_BITS as usize {
                    let spare = FAST_BITS as usize - length;
                    let mut fill = 0;
                    while fill < 1 << spare {
                        t.fast[((code as usize) << spare) + fill] = (symbol as u8, length as u8);
                        fill += 1;
                    }
                }
                code += 1;
                index += 1;
            }
            symbol += 1;
        }
        // The last length uses up the code space: its limit would be 2^32.
        t.limits[length] = if length == LONGEST { u32::MAX } else { code << (32 - length) };
        length += 1;
    }
    assert!(code == 1 << LONGEST, "the lengths make a complete code");
    t
}

/// Appends the decoded string. At most 8/5 of the input comes out.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    out.reserve(input.len() * 8 / 5);
    let mut rest = input;
    // The next bits, left-aligned; zeros behind the `held` valid ones.
    let (mut bits, mut held) = (0u64, 0u32);
    loop {
        // Enough for the longest code, as long as there is input.
        while held < LONGEST as u32 {
            if let Some((word, tail)) = rest.split_first_chunk() {
                bits |= u64::from(u32::from_be_bytes(*word)) << (32 - held);
                held += 32;
                rest = tail;
            } else if let Some((&byte, tail)) = rest.split_first() {
                bits |= u64::from(byte) << (56 - held);
                held += 8;
                rest = tail;
            } else {
                break;
            }
        }
        while held >= FAST_BITS {
            let (symbol, length) = TABLES.fast[(bits >> (64 - FAST_BITS)) as usize];
            if length == 0 {
                break;
            }
            out.push(symbol);
            bits <<= length;
            held -= u32::from(length);
        }
        // What comes next is a long code, or at the end of the input the last short one or padding.
        if held < LONGEST as u32 && !rest.is_empty() {
            continue;
        }
        let (symbol, length) = match TABLES.fast[(bits >> (64 - FAST_BITS)) as usize] {
            (_, 0) => long_code((bits >> 32) as u32),
            (symbol, length) => (u16::from(symbol), u32::from(length)),
        };
        if length > held {
            return check_padding(bits, held);
        }
        if symbol == EOS {
            return Err(Error::Huffman);
        }
        out.push(symbol as u8);
        bits <<= length;
        held -= length;
    }
}

/// Finds a code longer than [`FAST_BITS`].
#[cold]
fn long_code(bits: u32) -> (u16, u32) {
    let mut length = FAST_BITS as usize + 1;
    while length < LONGEST && bits >= TABLES.limits[length] {
        length += 1;
    }
    let index = (bits >> (32 - length)).wrapping_add(TABLES.offsets[length]);
    (TABLES.sorted[index as usize], length as u32)
}

/// What is left over must be the start of EOS, all ones, and shorter than a byte (RFC 7541 section 5.2).
fn check_padding(bits: u64, held: u32) -> Result<(), Error> {
    let is_padding = held < 8 && (held == 0 || bits >> (64 - held) == (1 << held) - 1);
    if is_padding { Ok(()) } else { Err(Error::Huffman) }
}

/// The length of a string once encoded.
#[must_use]
pub fn encoded_len(input: &[u8]) -> usize {
    let bits: usize = input.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the encoded string, padded with ones.
pub fn encode(input: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut held) = (0u64, 0u32);
    for &byte in input {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(TABLES.codes[usize::from(byte)]);
        held += length;
        while held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    if held > 0 {
        out.push((bits << (8 - held)) as u8 | 0xff >> held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| out)
    }

    // RFC 7541 appendix B: the corners of the table.
    #[test]
    fn codes_are_those_of_the_rfc() {
        for (symbol, code, length) in [
            (b'0', 0x0, 5),
            (b'a', 0x3, 5),
            (b' ', 0x14, 6),
            (b'Z', 0xfd, 8),
            (b'\\', 0x7fff0, 19),
            (0, 0x1ff8, 13),
            (10, 0x3fff_fffc, 30),
            (22, 0x3fff_fffe, 30),
            (127, 0xfff_fffc, 28),
            (128, 0xf_ffe6, 20),
            (249, 0xfff_fffe, 28),
            (255, 0x3ff_ffee, 26),
        ] {
            assert_eq!(TABLES.codes[usize::from(symbol)], code, "{symbol}");
            assert_eq!(LENGTHS[usize::from(symbol)], length, "{symbol}");
        }
        assert_eq!(TABLES.codes[256], 0x3fff_ffff);
    }

    #[test]
    fn every_byte_survives_alone_and_in_company() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for input in all.chunks(1).chain([&all[..]]) {
            let mut encoded = Vec::new();
            encode(input, &mut encoded);
            assert_eq!(encoded.len(), encoded_len(input));
            assert_eq!(decoded(&encoded).as_deref(), Ok(input));
        }
    }

    // RFC 7541 section 5.2
    #[test]
    fn wrong_padding_is_refused() {
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
        assert_eq!(decoded(&[0b0001_1110]), Err(Error::Huffman), "padding with a zero");
        assert_eq!(decoded(&[0b0001_1111, 0xff]), Err(Error::Huffman), "padding of a byte or more");
        assert_eq!(decoded(&[0xff]), Err(Error::Huffman), "a whole byte of padding");
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(Error::Huffman), "EOS");
        assert_eq!(decoded(&[0x07, 0xff, 0xff, 0xff, 0xff]), Err(Error::Huffman), "EOS behind a symbol");
        assert_eq!(decoded(&[]), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn any_string_survives(input: Vec<u8>) {
            let mut encoded = Vec::new();
            encode(&input, &mut encoded);
            prop_assert_eq!(decoded(&encoded), Ok(input));
        }

        // One encoding per string: what decodes must encode to the same bytes.
        #[test]
        fn whatever_decodes_is_canonical(input: Vec<u8>) {
            if let Ok(text) = decoded(&input) {
                let mut encoded = Vec::new();
                encode(&text, &mut encoded);
                prop_assert_eq!(encoded, input);
            }
        }
    }
}
