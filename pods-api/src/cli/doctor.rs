//! `doctor`: whether the server on this machine is well, and how far its pods' status agrees with the kubelet's.
//!
//! Asks the admin listener, not the Pods API: it answers before the server is ready, and shows no pod data.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;

use super::error::Error;

const PATIENCE: Duration = Duration::from_secs(5);
/// Far above what the listener sends.
const MAX_ANSWER_BYTES: u64 = 16 << 20;
const DIVERGENCE: &str = "pods_api_status_divergence_total{field=\"";

/// The arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// The server's admin listener
    #[arg(long, env = "PODS_API_ADMIN", default_value = "127.0.0.1:9477", value_name = "ADDRESS")]
    admin: SocketAddr,
}

impl Doctor {
    pub(super) fn run(&self) -> Result<(), Error> {
        let (code, checks) = self.get("/readyz?verbose")?;
        let (_, metrics) = self.get("/metrics")?;
        let mut out = io::stdout().lock();
        out.write_all(checks.as_bytes())?;
        out.write_all(describe(&divergences(&metrics)).as_bytes())?;
        if code == 200 { Ok(()) } else { Err(Error::NotReady) }
    }

    fn get(&self, path: &str) -> Result<(u16, String), Error> {
        let failed = |source| Error::Admin { address: self.admin, source };
        let get = || {
            let mut stream = TcpStream::connect_timeout(&self.admin, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.admin)?;
            read_answer(stream)
        };
        get().map_err(failed)
    }
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

fn describe(divergences: &[(&str, &str)]) -> String {
    if divergences.is_empty() {
        return "no container runtime is asked: status is as the sources have it\n".to_owned();
    }
    let differing: Vec<_> = divergences.iter().filter(|(_, count)| *count != "0").collect();
    if differing.is_empty() {
        return "status: no difference between the kubelet's and what the runtime shows\n".to_owned();
    }
    let mut text = "status: the kubelet's differed from what the runtime shows, times by field:\n".to_owned();
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
                       pods_api_pods 3\n";
        let text = describe(&divergences(metrics));
        assert!(text.ends_with("by field:\n    phase 2\n"), "{text}");
        assert!(describe(&divergences(&metrics.replace("} 2", "} 0"))).contains("no difference"));
        assert!(describe(&divergences("pods_api_pods 3\n")).contains("no container runtime"));
    }
}
