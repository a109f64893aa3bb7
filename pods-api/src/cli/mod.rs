//! The client commands: `get pods`, `lookup` and their output.
