//! `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Requests").

use std::time::Duration;

/// Reads a timeout; `None` for what the grammar does not allow.
#[must_use]
pub(super) fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount = digits.iter().fold(0u64, |amount, digit| amount * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(amount * 3600),
        b'M' => Duration::from_secs(amount * 60),
        b'S' => Duration::from_secs(amount),
        b'm' => Duration::from_millis(amount),
        b'u' => Duration::from_micros(amount),
        b'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_understood() {
        for (text, duration) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("4S", Duration::from_secs(4)),
            ("5m", Duration::from_millis(5)),
            ("6u", Duration::from_micros(6)),
            ("7n", Duration::from_nanos(7)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
            ("0n", Duration::ZERO),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(duration), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "S", "1", "1s", "123456789S", "-1S", "+1S", "1.5S", " 1S", "1S ", "1 S"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
