//! Text for terminals: aligned tables, figures with three significant digits.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command's output and progress")]

use std::fmt;
use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use serde::Serialize;

use crate::measure::Summary;

/// Rows of cells; the first column is aligned left, the others right unless they are prose.
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    align_left: bool,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            head: head.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
            align_left: false,
        }
    }

    /// A table of names and values, without a head.
    pub(crate) fn pairs() -> Self {
        Self { head: Vec::new(), rows: Vec::new(), align_left: true }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn pair(&mut self, name: &str, value: String) {
        self.row(vec![name.to_owned(), value]);
    }

    pub(crate) fn latency(&mut self, name: &str, latency: &Summary) {
        let text = [
            ("p50", latency.p50),
            ("p90", latency.p90),
            ("p99", latency.p99),
            ("p99.9", latency.p999),
            ("max", latency.max),
        ]
        .map(|(label, nanos)| format!("{label} {}", micros(nanos as f64 / 1e3)));
        self.pair(name, text.join(", "));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<&Vec<String>> =
            std::iter::once(&self.head).filter(|head| !head.is_empty()).chain(&self.rows).collect();
        let columns = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                rows.iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for row in rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 || self.align_left {
                    line.push_str(&format!("{cell:<width$}  "));
                } else {
                    line.push_str(&format!("{cell:>width$}  "));
                }
            }
            writeln!(formatter, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Microseconds with a fitting unit.
pub(crate) fn micros(value: f64) -> String {
    match value {
        value if value < 1e3 => format!("{} µs", significant(value)),
        value if value < 1e6 => format!("{} ms", significant(value / 1e3)),
        value => format!("{} s", significant(value / 1e6)),
    }
}

/// Bytes with a fitting decimal unit.
pub(crate) fn bytes(value: f64) -> String {
    match value {
        value if value < 1e6 => format!("{} kB", significant(value / 1e3)),
        value if value < 1e9 => format!("{} MB", significant(value / 1e6)),
        value => format!("{} GB", significant(value / 1e9)),
    }
}

/// A number with thousands separators, no fraction.
pub(crate) fn quantity(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digit != '-' && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits.
pub(crate) fn significant(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

pub(crate) fn print(text: &str) {
    print!("{text}");
}

pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value).context("encoding the outcome")?);
    Ok(())
}

/// Says on standard error what is being done now, on one line that the next call replaces.
pub(crate) fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    } else {
        eprintln!("{text}");
    }
    let _ = std::io::stderr().flush();
}

/// Ends the progress line.
pub(crate) fn progress_done() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", "cost"]);
        table.row(vec!["tonic".into(), "1".into()]);
        table.row(vec!["ours (µ)".into(), "1234".into()]);
        assert_eq!(table.to_string(), "name      cost\ntonic        1\nours (µ)  1234\n");
    }

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!(micros(0.1234), "0.123 µs");
        assert_eq!(micros(19.46), "19.5 µs");
        assert_eq!(micros(1378.0), "1.38 ms");
        assert_eq!(micros(10_200_000.0), "10.2 s");
        assert_eq!(bytes(631e6), "631 MB");
        assert_eq!(significant(0.0), "0");
        assert_eq!((quantity(1234567.0), quantity(999.0)), ("1,234,567".into(), "999".into()));
        assert_eq!(quantity(-1234.0), "-1,234");
    }
}
