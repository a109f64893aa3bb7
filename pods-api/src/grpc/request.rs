//! A Pods call whose request is still arriving.
//!
//! Owned by its connection, on the worker thread.

use super::counters::{Api, Method};
use super::head::Metadata;
use super::message::{self, MessageReader};
use super::status::Status;
use bytes::Bytes;

/// The request of a Pods call, as far as it has come in.
pub(super) struct PodsRequest {
    pub(super) api: Api,
    pub(super) method: Method,
    pub(super) metadata: Metadata,
    reader: MessageReader,
    pub(super) message: Option<Bytes>,
}

impl PodsRequest {
    pub(super) fn new(api: Api, method: Method, metadata: Metadata) -> Self {
        Self { api, method, metadata, reader: MessageReader::default(), message: None }
    }

    /// Takes a part of the body. Messages after the first are ignored: every method takes one.
    pub(super) fn take(&mut self, data: &Bytes) -> Result<(), Status> {
        if data.is_empty() || self.message.is_some() {
            return Ok(());
        }
        if !self.reader.is_partial()
            && let Some(message) = message::whole_message(data)?
        {
            self.message = Some(message);
            return Ok(());
        }
        self.reader.push(data);
        self.message = self.reader.next()?;
        Ok(())
    }
}
