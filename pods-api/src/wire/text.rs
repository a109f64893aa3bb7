//! The error of both text readers, JSON and YAML.

/// Why a text is not the JSON or YAML that it should be, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct TextError {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// What is wrong: lower case, without a full stop.
    pub message: String,
}

impl TextError {
    /// An error at one place of the text.
    pub(crate) fn new(line: u32, column: u32, message: impl Into<String>) -> Self {
        Self { line, column, message: message.into() }
    }
}
