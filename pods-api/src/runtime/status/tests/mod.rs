//! The status rules as tables: each row names its rule, and every derivation is checked to be stable.

mod conditions;
mod containers;
mod divergence;
mod exits;
mod fields;
mod network;
mod overlay;
mod phase;
mod probes;
mod properties;
