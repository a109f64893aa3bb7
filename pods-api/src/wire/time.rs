//! Points in time: RFC 3339 text in JSON, whole seconds from 1970 in protobuf (rule E.9.6).

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};

/// 0001-01-01T00:00:00Z, the zero time of upstream's language: it means unset.
const ZERO_TIME_SECONDS: i64 = -62_135_596_800;

/// The seconds that an RFC 3339 text stands for, or `None` within `Some` for the zero time; `None` when the text is
/// not one. Fractions of a second are dropped: protobuf keeps whole seconds.
///
/// Written out instead of left to jiff, whose parser also takes what upstream refuses: blanks instead of `T`, lower
/// case letters, dates without a time.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Option<i64>> {
    let bytes = text.as_bytes();
    let shape = bytes.get(..19)?;
    for (at, expected) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        if shape[at] != expected {
            return None;
        }
    }
    let number = |from: usize, to: usize| digits(&shape[from..to]);
    let date = Date::new(number(0, 4)? as i16, number(5, 7)? as i8, number(8, 10)? as i8).ok()?;
    let time = Time::new(number(11, 13)? as i8, number(14, 16)? as i8, number(17, 19)? as i8, 0).ok()?;
    let offset = offset_seconds(skip_fraction(&bytes[19..])?)?;
    let seconds = DateTime::from_parts(date, time).duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    let seconds = seconds.as_secs() - offset;
    Some((seconds != ZERO_TIME_SECONDS).then_some(seconds))
}

/// RFC 3339 text in UTC; `None` for a year that has not four digits.
pub(crate) fn format_rfc3339(seconds: i64) -> Option<String> {
    let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    let at = epoch.checked_add(SignedDuration::from_secs(seconds)).ok()?;
    let (year, month, day) = (at.year(), at.month(), at.day());
    (0..=9999).contains(&year).then(|| {
        format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", at.hour(), at.minute(), at.second())
    })
}

fn digits(bytes: &[u8]) -> Option<u16> {
    bytes.iter().try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + u16::from(byte - b'0')))
}

fn skip_fraction(rest: &[u8]) -> Option<&[u8]> {
    let Some(fraction) = rest.strip_prefix(b".").or_else(|| rest.strip_prefix(b",")) else {
        return Some(rest);
    };
    let len = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (len > 0).then(|| &fraction[len..])
}

fn offset_seconds(offset: &[u8]) -> Option<i64> {
    let (sign, rest) = match offset {
        [b'Z'] => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let [h1, h2, b':', m1, m2] = *rest else { return None };
    let (hours, minutes) = (digits(&[h1, h2])?, digits(&[m1, m2])?);
    (hours <= 24 && minutes < 60).then(|| sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule E.9.6
    #[test]
    fn times_are_read_as_whole_seconds() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59Z", -1),
            ("2026-07-01T12:30:15.999999999Z", 1_782_909_015),
            ("2026-07-01T14:30:15+02:00", 1_782_909_015),
            ("2026-07-01T05:00:15-07:30", 1_782_909_015),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
            ("9999-12-31T23:59:59-23:59", 253_402_300_799 + 86_340),
            ("0000-01-01T00:00:00Z", -62_167_219_200),
        ] {
            assert_eq!(parse_rfc3339(text), Some(Some(seconds)), "{text}");
        }
    }

    #[test]
    fn the_zero_time_is_unset() {
        assert_eq!(parse_rfc3339("0001-01-01T00:00:00Z"), Some(None));
        assert_eq!(parse_rfc3339("0001-01-01T01:00:00+01:00"), Some(None));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "2026-07-01",
            "2026-07-01 12:30:15Z",
            "2026-07-01t12:30:15z",
            "2026-07-01T12:30:15",
            "2026-07-01T12:30:15.Z",
            "2026-07-01T12:30:60Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-07-01T12:30:15+0200",
            "2026-07-01T12:30:15+02:60",
            "2026-07-01T12:30:15Z ",
            "+026-07-01T12:30:15Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(format_rfc3339(0).unwrap(), "1970-01-01T00:00:00Z");
        assert_eq!(format_rfc3339(1_782_909_015).unwrap(), "2026-07-01T12:30:15Z");
        assert_eq!(format_rfc3339(-62_167_219_200).unwrap(), "0000-01-01T00:00:00Z");
        assert_eq!(format_rfc3339(253_402_300_800), None);
        assert_eq!(format_rfc3339(i64::MAX), None);
        assert_eq!(format_rfc3339(i64::MIN), None);
    }

    proptest::proptest! {
        #[test]
        fn text_and_seconds_round_trip(seconds in -62_135_596_799_i64..253_402_300_800) {
            let text = format_rfc3339(seconds).unwrap();
            proptest::prop_assert_eq!(parse_rfc3339(&text), Some(Some(seconds)));
        }
    }
}
