//! Environment variables that look like flags and are none: most likely misspelt, and without effect.

use super::ServeArgs;
use clap::Args as _;
use std::ffi::OsString;

const PREFIX: &str = "PODS_API_";
/// Read by the build and by the tests.
const NOT_OURS: [&str; 2] = ["PODS_API_BUILD_", "PODS_API_TEST_"];

/// A variable that no flag is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownVariable {
    /// Its name.
    pub name: String,
    /// The known name that is most like it.
    pub nearest: String,
}

/// The variables of this process that begin as ours do and are none of them.
#[must_use]
pub fn unknown_environment() -> Vec<UnknownVariable> {
    unknown_among(std::env::vars_os().map(|(name, _)| name))
}

fn unknown_among(names: impl Iterator<Item = OsString>) -> Vec<UnknownVariable> {
    let serve = ServeArgs::augment_args(clap::Command::new("serve"));
    let known: Vec<_> = serve.get_arguments().filter_map(|flag| flag.get_env()?.to_str()).collect();
    let is_ours = |name: &str| {
        name.starts_with(PREFIX)
            && !NOT_OURS.iter().any(|other| name.starts_with(other))
            && !known.contains(&name)
    };
    let mut unknown: Vec<_> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| is_ours(name))
        .filter_map(|name| {
            let nearest = known.iter().min_by_key(|known| edits(known.as_bytes(), name.as_bytes()))?;
            Some(UnknownVariable { nearest: (*nearest).to_owned(), name })
        })
        .collect();
    unknown.sort_by(|a, b| a.name.cmp(&b.name));
    unknown
}

/// The Levenshtein distance: how many bytes must be put in, taken out or replaced to make one text of the other.
fn edits(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, byte) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (at, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_are_named_with_the_nearest_flag() {
        let names = ["PODS_API_SOKET", "PODS_API_SOCKET", "PODS_API_BUILD_EBPF", "PODS_API_TEST_X", "HOME"];
        let unknown = unknown_among(names.into_iter().map(OsString::from));
        let [unknown] = &unknown[..] else { panic!("{unknown:?}") };
        assert_eq!((&*unknown.name, &*unknown.nearest), ("PODS_API_SOKET", "PODS_API_SOCKET"));
        let nearest = |name: &str| unknown_among([name.into()].into_iter())[0].nearest.clone();
        assert_eq!(nearest("PODS_API_MANIFEST"), "PODS_API_MANIFESTS");
        assert_eq!(nearest("PODS_API_ALLOWED"), "PODS_API_ALLOW");
    }

    #[test]
    fn edits_are_counted() {
        for (from, to, count) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("abc", "", 3)]
        {
            assert_eq!(edits(from.as_bytes(), to.as_bytes()), count, "{from} {to}");
        }
    }
}
