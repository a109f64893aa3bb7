//! Pods on stdout: a table that stays aligned while it grows, or JSON, YAML, names.

use std::io::{self, Write};

use clap::ValueEnum;
use pods_api_proto::v1alpha1::EventType;
use serde_json::{Value, json};

use super::columns::Row;
use super::error::Error;
use super::get::Seen;
use crate::wire;

/// How pods are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Format {
    /// The columns of kubectl
    #[default]
    Table,
    /// The same with addresses, node and UID
    Wide,
    /// The whole pod as JSON
    Json,
    /// The whole pod as YAML
    Yaml,
    /// pod/NAME
    Name,
}

impl Format {
    /// Whether whole pods are printed, and not only what identifies them.
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    pub(super) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Prints pods in one format. Rows printed later keep to the columns of those printed before, and widen them where
/// they must.
pub(super) struct Printer {
    format: Format,
    table: Table,
}

impl Printer {
    pub(super) fn new(format: Format, with_namespace: bool) -> Self {
        Self { format, table: Table::new(with_namespace, format == Format::Wide) }
    }

    /// A remark that is not output.
    pub(super) fn note(&self, text: &str) -> Result<(), Error> {
        Ok(writeln!(io::stderr(), "{text}")?)
    }

    /// One pod.
    pub(super) fn single(mut self, pod: &Seen) -> Result<(), Error> {
        let text = match self.format {
            Format::Json => pretty(&wire::pod_to_json(&pod.bytes)?),
            Format::Yaml => wire::pod_to_yaml(&pod.bytes)?,
            Format::Name => name(pod),
            Format::Table | Format::Wide => self.table.rows(&[&pod.row]),
        };
        write(&text)
    }

    /// Several pods, in the machine formats as a v1 List.
    pub(super) fn list(mut self, pods: &[Seen]) -> Result<(), Error> {
        let text = match self.format {
            Format::Json => pretty(&list(pods)?),
            Format::Yaml => wire::json_to_yaml(&list(pods)?),
            Format::Name => pods.iter().map(name).collect(),
            Format::Table | Format::Wide => {
                self.table.rows(&pods.iter().map(|pod| &pod.row).collect::<Vec<_>>())
            }
        };
        write(&text)
    }

    /// Events of a watch, in the machine formats each as its type and object.
    pub(super) fn events(&mut self, events: &[(EventType, Seen)]) -> Result<(), Error> {
        let mut text = String::new();
        match self.format {
            Format::Json => {
                for (kind, pod) in events {
                    text.push_str(&event(*kind, pod)?.to_string());
                    text.push('\n');
                }
            }
            Format::Yaml => {
                for (kind, pod) in events {
                    text.push_str("---\n");
                    text.push_str(&wire::json_to_yaml(&event(*kind, pod)?));
                }
            }
            Format::Name => text.extend(events.iter().map(|(_, pod)| name(pod))),
            Format::Table | Format::Wide => {
                text = self.table.rows(&events.iter().map(|(_, pod)| &pod.row).collect::<Vec<_>>());
            }
        }
        write(&text)
    }
}

fn write(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn name(pod: &Seen) -> String {
    format!("pod/{}\n", pod.row.name)
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn list(pods: &[Seen]) -> Result<Value, Error> {
    let items = pods.iter().map(|pod| wire::pod_to_json(&pod.bytes)).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}))
}

fn event(kind: EventType, pod: &Seen) -> Result<Value, Error> {
    Ok(json!({"type": kind.as_str_name(), "object": wire::pod_to_json(&pod.bytes)?}))
}

/// Columns whose widths only grow.
struct Table {
    with_namespace: bool,
    wide: bool,
    widths: Vec<usize>,
}

impl Table {
    fn new(with_namespace: bool, wide: bool) -> Self {
        Self { with_namespace, wide, widths: Vec::new() }
    }

    /// The rows as text, with the header before the first ones.
    fn rows(&mut self, rows: &[&Row]) -> String {
        let mut lines: Vec<Vec<&str>> = Vec::with_capacity(rows.len() + 1);
        if self.widths.is_empty() {
            let header = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "UID"];
            lines.push(self.select(header));
        }
        for row in rows {
            lines.push(self.select([
                &row.namespace,
                &row.name,
                &row.ready,
                &row.status,
                &row.restarts,
                &row.age,
                &row.ip,
                &row.node,
                &row.uid,
            ]));
        }
        for line in &lines {
            self.widths.resize(line.len(), 0);
            for (width, cell) in self.widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for line in &lines {
            let (last, cells) = line.split_last().expect("every line has cells");
            for (cell, width) in cells.iter().zip(&self.widths) {
                text.push_str(&format!("{cell:<width$}   "));
            }
            text.push_str(last);
            text.push('\n');
        }
        text
    }

    fn select<'a>(&self, cells: [&'a str; 9]) -> Vec<&'a str> {
        let from = usize::from(!self.with_namespace);
        let to = if self.wide { 9 } else { 6 };
        cells[from..to].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, status: &str) -> Row {
        Row {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            ready: "1/1".to_owned(),
            status: status.to_owned(),
            restarts: "0".to_owned(),
            age: "5s".to_owned(),
            ip: "10.0.0.1".to_owned(),
            node: "node-1".to_owned(),
            uid: "u-1".to_owned(),
        }
    }

    #[test]
    fn table_aligns_rows_and_prints_its_header_once() {
        let mut table = Table::new(false, false);
        let first = table.rows(&[&row("web", "Running"), &row("database", "Pending")]);
        let later = table.rows(&[&row("web", "Completed")]);
        assert_eq!(
            first,
            "NAME       READY   STATUS    RESTARTS   AGE\n\
             web        1/1     Running   0          5s\n\
             database   1/1     Pending   0          5s\n"
        );
        assert_eq!(later, "web        1/1     Completed   0          5s\n");
    }

    #[test]
    fn wide_table_adds_address_node_and_uid() {
        let text = Table::new(true, true).rows(&[&row("web", "Running")]);
        let cells: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            cells[0],
            ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "UID"]
        );
        assert_eq!(cells[1], ["shop", "web", "1/1", "Running", "0", "5s", "10.0.0.1", "node-1", "u-1"]);
    }
}
