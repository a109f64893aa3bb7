//! The Huffman code of RFC 7541 appendix B, decoding only.
//!
//! The code is canonical (codes of one length count up in symbol order), so the 257 code lengths are all there is
//! to know; the decoding tables follow from them at compile time.

use anyhow::{bail, ensure};

/// Code length in bits of each byte value; the 30-bit end-of-string symbol comes last.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];
const MAX_BITS: usize = 30;
const END_OF_STRING: u16 = 256;

struct Tables {
    /// First code of each length.
    first: [u32; MAX_BITS + 2],
    /// Where the symbols of each length begin in `symbols`.
    offset: [u16; MAX_BITS + 2],
    /// Symbols by code length, then by value.
    symbols: [u16; 257],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables { first: [0; MAX_BITS + 2], offset: [0; MAX_BITS + 2], symbols: [0; 257] };
    let (mut bits, mut code, mut next) = (1, 0u32, 0);
    while bits <= MAX_BITS {
        tables.first[bits] = code;
        tables.offset[bits] = next as u16;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == bits {
                tables.symbols[next] = symbol as u16;
                next += 1;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        bits += 1;
    }
    tables.offset[MAX_BITS + 1] = next as u16;
    tables
}

/// Decodes a Huffman-coded string literal; at most 7 one-bits may pad it (RFC 7541 section 5.2).
pub(super) fn decode(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() * 2);
    let (mut code, mut bits) = (0u32, 0usize);
    for byte in bytes {
        for shift in (0..8).rev() {
            code = code << 1 | u32::from(byte >> shift & 1);
            bits += 1;
            let count = u32::from(TABLES.offset[bits + 1] - TABLES.offset[bits]);
            if let Some(index) = code.checked_sub(TABLES.first[bits])
                && index < count
            {
                let symbol = TABLES.symbols[usize::from(TABLES.offset[bits]) + index as usize];
                ensure!(symbol != END_OF_STRING, "huffman string contains the end-of-string symbol");
                out.push(symbol as u8);
                (code, bits) = (0, 0);
            } else if bits == MAX_BITS {
                bail!("huffman string contains no known code");
            }
        }
    }
    ensure!(bits < 8 && code == (1 << bits) - 1, "huffman string has wrong padding");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_the_examples_of_rfc_7541() {
        // RFC 7541 appendix C.4.1, C.4.3 and C.6.1.
        for (coded, plain) in [
            (
                &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..],
                "www.example.com",
            ),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf], "custom-value"),
            (&[0x64, 0x02], "302"),
            (&[0xae, 0xc3, 0x77, 0x1a, 0x4b], "private"),
        ] {
            assert_eq!(decode(coded).unwrap(), plain.as_bytes());
        }
    }

    #[test]
    fn wrong_padding_and_end_of_string_are_refused() {
        assert!(decode(&[0x64]).is_err(), "padding must be ones");
        assert!(decode(&[0x64, 0x02, 0xff]).is_err(), "eight bits of padding");
        assert!(decode(&[0xff, 0xff, 0xff, 0xff]).is_err(), "end of string");
        assert_eq!(decode(&[]).unwrap(), b"");
    }

    #[test]
    fn code_is_complete() {
        // Kraft sum of a complete prefix code is 1: no bit pattern is left without meaning.
        let sum: u64 = LENGTHS.iter().map(|bits| 1u64 << (MAX_BITS - usize::from(*bits))).sum();
        assert_eq!(sum, 1 << MAX_BITS);
    }
}
