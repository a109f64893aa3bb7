//! Quantities (`500m`, `1536Mi`, `1e3`): parsing, canonical text, rounding and order, as the API has them.
//!
//! The arithmetic is exact and works on decimal digits: a quantity may have any number of digits, and its exponent
//! is never expanded, so the cost is linear in the text. `kube-quantity` and 128-bit integers were rejected because
//! a decimal quantity has no upper bound upstream (40 digits are kept), only a binary one has.

use std::cmp::Ordering;
use std::fmt;

/// The finest unit: everything below a nano is rounded up to one.
const NANO: i64 = -9;
/// The finest unit of a resource (rule A.2.9).
const MILLI: i64 = -3;
/// Upstream counts in an int64 when a number has at most this many digits.
const FAST_DIGITS: usize = 18;

const DECIMAL_SUFFIXES: [(&str, i64); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [(&str, u32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// Which family of suffixes a quantity was written with; kept when it is written again (rule A.2.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Decimal,
    Exponent,
    Binary,
}

/// A number with a unit suffix. Equality and order are those of the numbers: `1` equals `1000m`.
#[derive(Debug, Clone)]
pub struct Quantity {
    negative: bool,
    /// Decimal digits without leading zeros; empty for zero.
    digits: Vec<u8>,
    /// The value is `digits` times ten to this power.
    exponent: i64,
    family: Family,
    /// The text as written, where upstream keeps it instead of building the canonical one.
    kept: Option<Box<str>>,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty or blank.
    #[error("a quantity must not be empty")]
    Empty,
    /// Something stands where a digit, a point or a suffix should.
    #[error("a quantity is a number with an optional suffix, such as 500m, 1.5Gi or 1e3")]
    Format,
    /// The suffix is none of those known.
    #[error(
        "the suffix of a quantity is one of n u m k M G T P E Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
    )]
    Suffix,
}

impl Quantity {
    /// Reads a quantity; blanks around it are allowed, as upstream allows them within a JSON string.
    ///
    /// # Errors
    /// Where upstream refuses the text too. A sign or a suffix alone is zero, as upstream has it.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let whole = whole.trim_start_matches('0');
        let (family, power) = interpret_suffix(suffix)?;
        let mut quantity = Self {
            negative,
            digits: [whole, fraction].concat().into_bytes(),
            exponent: -i64::try_from(fraction.len()).map_err(|_| QuantityError::Format)?,
            family,
            kept: None,
        };
        // Upstream's count gives a missing whole part one digit.
        let written_digits = whole.len().max(1) + fraction.len();
        let keeps_text = match family {
            Family::Binary => {
                let fits = written_digits + power as usize * 3 / 10 < 15;
                fits && fraction.is_empty() && quantity.last_three_bits() != 0
            }
            Family::Decimal | Family::Exponent => {
                let scale = power - fraction.len() as i64;
                let digits_end_in_zeros = quantity.digits.ends_with(b"000");
                written_digits <= FAST_DIGITS
                    && (NANO..=i64::from(i32::MAX)).contains(&scale)
                    && scale % 3 == 0
                    && !digits_end_in_zeros
                    && !whole.is_empty()
            }
        };
        if keeps_text {
            // Upstream reuses a text that it takes for canonical; `+1` and `1.500` pass that test and stay as written.
            quantity.kept = Some(text.into());
        }
        match family {
            Family::Binary => quantity.multiply(1 << power),
            Family::Decimal | Family::Exponent => quantity.exponent += power,
        }
        quantity.strip_leading_zeros();
        quantity.round_away(NANO);
        if family == Family::Binary && quantity.magnitude_cmp(&Self::max_binary()) == Ordering::Greater {
            quantity = Self { negative, ..Self::max_binary() };
        }
        Ok(quantity)
    }

    /// Rounds away from zero to a thousandth, as the API does with every resource (rule A.2.9).
    pub fn round_up_to_milli(&mut self) {
        if self.exponent < MILLI {
            self.kept = None;
            self.round_away(MILLI);
        }
    }

    /// Whether the value is below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.negative && !self.is_zero()
    }

    /// Whether the value is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// The largest binary quantity; larger ones are capped to it. Decimal quantities have no cap.
    fn max_binary() -> Self {
        Self {
            negative: false,
            digits: i64::MAX.to_string().into_bytes(),
            exponent: 0,
            family: Family::Binary,
            kept: None,
        }
    }

    /// The low three bits of the digits taken as an integer (1000 is divisible by 8, so three digits tell).
    fn last_three_bits(&self) -> u32 {
        let tail = &self.digits[self.digits.len().saturating_sub(3)..];
        tail.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')) & 7
    }

    fn strip_leading_zeros(&mut self) {
        let zeros = self.digits.iter().take_while(|digit| **digit == b'0').count();
        self.digits.drain(..zeros);
    }

    /// Multiplies the digits by a small number, digit by digit.
    fn multiply(&mut self, factor: u64) {
        let mut carry = 0_u64;
        for digit in self.digits.iter_mut().rev() {
            // At most 9 * 2^60 + 2^60: fits in 64 bits.
            let product = u64::from(*digit - b'0') * factor + carry;
            *digit = b'0' + (product % 10) as u8;
            carry = product / 10;
        }
        if carry > 0 {
            let mut digits = carry.to_string().into_bytes();
            digits.append(&mut self.digits);
            self.digits = digits;
        }
    }

    /// Rounds away from zero to a multiple of ten to the power `unit`.
    fn round_away(&mut self, unit: i64) {
        if self.exponent >= unit || self.is_zero() {
            return;
        }
        let dropped = usize::try_from(unit - self.exponent).unwrap_or(usize::MAX).min(self.digits.len());
        let kept = self.digits.len() - dropped;
        let inexact = self.digits[kept..].iter().any(|digit| *digit != b'0');
        self.digits.truncate(kept);
        self.exponent = unit;
        if inexact {
            self.increment();
        }
    }

    fn increment(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
        self.digits.insert(0, b'1');
    }

    /// The digits without trailing zeros, and the exponent that goes with them.
    fn normalized(&self) -> (&[u8], i64) {
        let zeros = self.digits.iter().rev().take_while(|digit| **digit == b'0').count();
        (&self.digits[..self.digits.len() - zeros], self.exponent + zeros as i64)
    }

    fn magnitude_cmp(&self, other: &Self) -> Ordering {
        let (digits, exponent) = self.normalized();
        let (other_digits, other_exponent) = other.normalized();
        match (digits.is_empty(), other_digits.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        let magnitude = digits.len() as i64 + exponent;
        let other_magnitude = other_digits.len() as i64 + other_exponent;
        // Without trailing zeros, and with the first digits in the same place, bytes order as the numbers do.
        magnitude.cmp(&other_magnitude).then_with(|| digits.cmp(other_digits))
    }

    /// The value, if it is an integer of 1,024 or more that has a binary suffix's form.
    fn as_binary_integer(&self) -> Option<u64> {
        let (digits, exponent) = self.normalized();
        if self.family != Family::Binary || exponent < 0 {
            return None;
        }
        let digits = std::str::from_utf8(digits).ok()?;
        let value =
            digits.parse::<u64>().ok()?.checked_mul(10_u64.checked_pow(u32::try_from(exponent).ok()?)?)?;
        (value >= 1024).then_some(value)
    }

    fn write_binary(f: &mut fmt::Formatter<'_>, mut value: u64) -> fmt::Result {
        let mut suffix = "";
        for (larger, _) in BINARY_SUFFIXES {
            if !value.is_multiple_of(1024) {
                break;
            }
            value /= 1024;
            suffix = larger;
        }
        write!(f, "{value}{suffix}")
    }

    fn write_decimal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (digits, exponent) = self.normalized();
        let zeros = exponent.rem_euclid(3) as usize;
        let exponent = exponent - zeros as i64;
        for digit in digits {
            write!(f, "{}", digit - b'0')?;
        }
        f.write_str(&"00"[..zeros])?;
        // A binary quantity below 1,024 or with a fraction is written as a decimal one.
        let suffix = (self.family != Family::Exponent)
            .then(|| DECIMAL_SUFFIXES.iter().find(|(_, power)| *power == exponent))
            .flatten();
        match suffix {
            Some((suffix, _)) => f.write_str(suffix),
            None if exponent == 0 => Ok(()),
            None => write!(f, "e{exponent}"),
        }
    }
}

impl fmt::Display for Quantity {
    /// Writes the canonical text (rule A.2.9): no fraction, the largest suffix that keeps an integer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kept) = &self.kept {
            return f.write_str(kept);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.negative {
            f.write_str("-")?;
        }
        match self.as_binary_integer() {
            Some(value) => Self::write_binary(f, value),
            None => self.write_decimal(f),
        }
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative(), other.is_negative()) {
            (false, false) => self.magnitude_cmp(other),
            (true, true) => other.magnitude_cmp(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The family and the power (of ten or of two) that a suffix stands for.
fn interpret_suffix(suffix: &str) -> Result<(Family, i64), QuantityError> {
    if let Some((_, power)) = DECIMAL_SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Ok((Family::Decimal, *power));
    }
    if let Some((_, power)) = BINARY_SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Ok((Family::Binary, i64::from(*power)));
    }
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']) {
        // Upstream truncates what does not fit in 32 bits to some other number; that is refused here.
        let power = exponent.parse::<i32>().map_err(|_| QuantityError::Suffix)?;
        return Ok((Family::Exponent, i64::from(power)));
    }
    let is_suffix = |byte: u8| b"eEinumkKMGTP".contains(&byte);
    Err(if suffix.bytes().all(is_suffix) { QuantityError::Suffix } else { QuantityError::Format })
}

#[cfg(test)]
#[path = "quantity_tests.rs"]
mod tests;
