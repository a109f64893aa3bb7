//! Prefixed integers (RFC 7541 section 5.1).

use super::Error;

/// Reads an integer whose first byte has `prefix_bits` bits for it; returns it and the bytes behind it.
///
/// At most four bytes follow the prefix, enough for 2^28: no table index and no string of a field block that is kept
/// in memory is larger, and an endless run of continuation bytes ends early.
#[inline]
pub(super) fn decode(input: &[u8], prefix_bits: u32) -> Result<(usize, &[u8]), Error> {
    let (&first, mut rest) = input.split_first().ok_or(Error::Truncated)?;
    let mask = (1u32 << prefix_bits) - 1;
    let mut value = u32::from(first) & mask;
    if value < mask {
        return Ok((value as usize, rest));
    }
    for shift in [0, 7, 14, 21] {
        let (&byte, tail) = rest.split_first().ok_or(Error::Truncated)?;
        rest = tail;
        value += u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value as usize, rest));
        }
    }
    Err(Error::IntegerOverflow)
}

/// Appends an integer; `pattern` is what the bits above the prefix say.
pub(super) fn encode(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, value: usize) {
    let mask = (1usize << prefix_bits) - 1;
    if value < mask {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | mask as u8);
    let mut left = value - mask;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7541 appendix C.1
    #[test]
    fn the_examples_of_the_rfc_come_out() {
        assert_eq!(decode(&[0b1110_1010], 5), Ok((10, &[][..])));
        assert_eq!(decode(&[0b0001_1111, 0x9a, 0x0a, 7], 5), Ok((1337, &[7][..])));
        assert_eq!(decode(&[42], 8), Ok((42, &[][..])));
        let mut out = Vec::new();
        encode(&mut out, 0, 5, 10);
        encode(&mut out, 0, 5, 1337);
        encode(&mut out, 0, 8, 42);
        assert_eq!(out, [10, 0x1f, 0x9a, 0x0a, 42]);
    }

    #[test]
    fn encoding_and_decoding_agree_at_every_edge() {
        for prefix_bits in 4..=8 {
            for value in [0, 1, 14, 15, 16, 30, 31, 126, 127, 128, 254, 255, 256, 16_383, 16_384, 0x0fff_ffff]
            {
                let mut out = Vec::new();
                encode(&mut out, 0, prefix_bits, value);
                assert_eq!(decode(&out, prefix_bits), Ok((value, &[][..])), "{prefix_bits} bits, {value}");
                for cut in 0..out.len() {
                    assert_eq!(decode(&out[..cut], prefix_bits), Err(Error::Truncated));
                }
            }
        }
    }

    #[test]
    fn an_endless_integer_is_refused() {
        assert_eq!(decode(&[0x1f, 0x80, 0x80, 0x80, 0x80, 0], 5), Err(Error::IntegerOverflow));
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff, 0x7f], 8), Ok((255 + 0x0fff_ffff, &[][..])));
    }
}
