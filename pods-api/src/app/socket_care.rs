//! What has become of the socket's name: said once in the log, and for as long as it lasts in `/readyz`.
//!
//! The socket is looked after each second, and what keeps it from being bound again, such as another server at its
//! path, may last for days. Runs on the control thread.

use crate::transport::{BindError, Rebound};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tracing::{error, info, warn};

/// The trouble that clients now have to find the socket. The mutex guards a text that only one thread writes and reads.
#[derive(Debug, Default)]
pub(super) struct SocketCare(Mutex<Option<String>>);

/// What a look at the socket has brought.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// It was gone and is bound again.
    Rebound(Rebound),
    /// It cannot be bound again, for a reason that was not there before.
    Trouble(String),
    /// Its name leads to it again without having been bound.
    Over,
}

impl SocketCare {
    /// Takes the outcome of one look, and logs it if it is news.
    pub(super) fn learn(&self, socket: &Path, outcome: Result<Option<Rebound>, BindError>) {
        let socket = socket.display();
        match self.news(outcome) {
            None => {}
            Some(News::Rebound(rebound)) => warn!(?rebound, %socket, "socket bound again"),
            Some(News::Trouble(error)) => {
                error!(error, %socket, "socket cannot be bound again; tried each second");
            }
            Some(News::Over) => info!(%socket, "socket is in its place again"),
        }
    }

    /// Why clients do not find the socket, if they do not.
    pub(super) fn trouble(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn news(&self, outcome: Result<Option<Rebound>, BindError>) -> Option<News> {
        let mut trouble = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(rebound) => {
                let was_in_trouble = trouble.take().is_some();
                rebound.map(News::Rebound).or(was_in_trouble.then_some(News::Over))
            }
            Err(error) => {
                let text = with_causes(&error);
                if trouble.as_ref() == Some(&text) {
                    return None;
                }
                *trouble = Some(text.clone());
                Some(News::Trouble(text))
            }
        }
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_news_once_for_each_reason_and_when_it_is_over() {
        let refused = |action: &'static str| {
            Err(BindError::Io { action, path: "/run/x".into(), cause: std::io::ErrorKind::NotFound.into() })
        };
        let care = SocketCare::default();
        assert_eq!(care.news(Ok(None)), None);
        let Some(News::Trouble(text)) = care.news(refused("open")) else { panic!("no news") };
        assert_eq!(text, "could not open \"/run/x\": entity not found");
        for _ in 0..100 {
            assert_eq!(care.news(refused("open")), None);
            assert_eq!(care.trouble().as_ref(), Some(&text));
        }
        assert!(matches!(care.news(refused("lock")), Some(News::Trouble(_))));
        assert_eq!(care.news(Ok(None)), Some(News::Over));
        assert_eq!((care.news(Ok(None)), care.trouble()), (None, None));
        assert!(matches!(care.news(refused("lock")), Some(News::Trouble(_))));
        assert_eq!(care.news(Ok(Some(Rebound::SocketDeleted))), Some(News::Rebound(Rebound::SocketDeleted)));
        assert_eq!((care.news(Ok(None)), care.trouble()), (None, None));
    }
}
