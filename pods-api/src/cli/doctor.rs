//! `doctor`: whether the server on this machine is well, and how far its pods' status agrees with the kubelet's.
//!
//! Asks the admin listener, not the Pods API: it answers before the server is ready, and shows no pod data.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::error::Error;

const PATIENCE: Duration = Duration::from_secs(5);
/// Far above what the listener sends.
const MAX_ANSWER_BYTES: u64 = 16 << 20;
const DIVERGENCE: &str = "pods_api_status_divergence_total{field=\"";
const COMPARISONS: &str = "pods_api_status_comparisons_total ";

/// The arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// The server's admin listener
    #[arg(long, env = "PODS_API_ADMIN", default_value = "127.0.0.1:9477", value_name = "ADDRESS")]
    admin: Admin,
}

/// Where the server's admin listener is: written as for the server, whose environment a shell may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admin {
    At(SocketAddr),
    None,
}

impl FromStr for Admin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            address => address
                .parse()
                .map(Self::At)
                .map_err(|_| "not an address and port; give one like 127.0.0.1:9477"),
        }
    }
}

impl Doctor {
    pub(super) fn run(&self) -> Result<(), Error> {
        let Admin::At(address) = self.admin else { return Err(Error::NoAdmin) };
        let (code, checks) = get(address, "/readyz?verbose")?;
        let (_, metrics) = get(address, "/metrics")?;
        let mut out = io::stdout().lock();
        out.write_all(checks.as_bytes())?;
        out.write_all(describe(&divergences(&metrics), comparisons(&metrics)).as_bytes())?;
        if code == 200 { Ok(()) } else { Err(Error::NotReady) }
    }
}

fn get(address: SocketAddr, path: &str) -> Result<(u16, String), Error> {
    let get = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        read_answer(stream)
    };
    get().map_err(|source| Error::Admin { address, source })
}

/// The status code and the body of an answer that ends with the connection.
fn read_answer(stream: impl io::Read) -> io::Result<(u16, String)> {
    let no_http = || io::Error::new(io::ErrorKind::InvalidData, "what answers there is no HTTP server");
    let mut reader = BufReader::new(stream.take(MAX_ANSWER_BYTES));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let code = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.trim().parse().ok());
    let code = code.ok_or_else(no_http)?;
    while !matches!(line.as_str(), "\r\n" | "") {
        line.clear();
        reader.read_line(&mut line)?;
    }
    let mut body = String::new();
    reader.read_to_string(&mut body)?;
    Ok((code, body))
}

/// Each field with how often the kubelet's status differed in it; nothing where no runtime is asked.
fn divergences(metrics: &str) -> Vec<(&str, &str)> {
    metrics.lines().filter_map(|line| line.strip_prefix(DIVERGENCE)?.split_once("\"} ")).collect()
}

/// How often the two were compared at all.
fn comparisons(metrics: &str) -> u64 {
    let count = metrics.lines().find_map(|line| line.strip_prefix(COMPARISONS)?.trim().parse().ok());
    count.unwrap_or_default()
}

fn describe(divergences: &[(&str, &str)], comparisons: u64) -> String {
    if divergences.is_empty() {
        return "no container runtime is asked: status is as the sources have it\n".to_owned();
    }
    if comparisons == 0 {
        return "status: not compared: no source gives the kubelet's\n".to_owned();
    }
    let differing: Vec<_> = divergences.iter().filter(|(_, count)| *count != "0").collect();
    if differing.is_empty() {
        return format!("status: the kubelet's as the runtime shows it, in {comparisons} comparisons\n");
    }
    let mut text = format!(
        "status: the kubelet's differed from what the runtime shows, of {comparisons} times, by field:\n"
    );
    for (field, count) in differing {
        text.push_str(&format!("    {field} {count}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_read_to_its_end_whatever_it_is() {
        let read = |text: &str| read_answer(text.as_bytes()).map_err(|error| error.kind());
        let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\r\nline\n\nline\n";
        assert_eq!(read(answer), Ok((503, "line\n\nline\n".to_owned())));
        assert_eq!(read("HTTP/1.0 200 OK\r\n"), Ok((200, String::new())));
        for no_http in ["", "SSH-2.0-x\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 many\r\n\r\n"] {
            assert_eq!(read(no_http), Err(io::ErrorKind::InvalidData), "{no_http:?}");
        }
    }

    #[test]
    fn only_fields_that_differ_are_named() {
        let metrics = "# TYPE pods_api_status_divergence counter\n\
                       pods_api_status_divergence_total{field=\"phase\"} 2\n\
                       pods_api_status_divergence_total{field=\"image\"} 0\n\
                       pods_api_status_comparisons_total 7\n\
                       pods_api_pods 3\n";
        let told = |metrics: &str| describe(&divergences(metrics), comparisons(metrics));
        let text = told(metrics);
        assert!(text.ends_with("of 7 times, by field:\n    phase 2\n"), "{text}");
        let agrees = metrics.replace("} 2", "} 0");
        assert!(told(&agrees).contains("in 7 comparisons"), "{}", told(&agrees));
        assert!(told("pods_api_pods 3\n").contains("no container runtime"));
    }

    #[test]
    fn without_a_comparison_nothing_is_said_of_differences() {
        let metrics = "pods_api_status_divergence_total{field=\"phase\"} 0\n\
                       pods_api_status_comparisons_total 0\n";
        let text = describe(&divergences(metrics), comparisons(metrics));
        assert_eq!(text, "status: not compared: no source gives the kubelet's\n");
    }

    #[test]
    fn admin_is_written_as_for_the_server() {
        assert_eq!("none".parse(), Ok(Admin::None));
        assert_eq!("127.0.0.1:9477".parse(), Ok(Admin::At(SocketAddr::from(([127, 0, 0, 1], 9477)))));
        assert!("localhost".parse::<Admin>().is_err_and(|why| why.contains("127.0.0.1:9477")));
    }
}
