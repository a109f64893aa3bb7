//! What the tests of all rooms share.

/// For a test that cannot run on this machine: CI must not pass without it, elsewhere it is skipped aloud.
pub(crate) fn cannot_run(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "cannot run: {why}");
    eprintln!("skipped: {why}");
}
