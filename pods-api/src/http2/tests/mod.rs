//! The connection as a whole: against hand-made frames, against an independent client, and under abuse.

mod interop;
