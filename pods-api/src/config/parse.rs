//! Texts of single flags to values, each refusal with what would be right.

use crate::access::Rule;
use crate::kernel::CgroupRoot;

pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text.trim_start_matches("0o"), 8) {
        Ok(mode) if mode > 0o777 => Err("has bits beyond 0777; give one like 0600 or 0660".into()),
        Ok(mode) if mode & 0o600 != 0o600 => {
            Err("takes the socket away from its owner; give one like 0600 or 0660".into())
        }
        Ok(mode) => Ok(mode),
        Err(_) => Err("not an octal mode; give one like 0600 or 0660".into()),
    }
}

/// A rule; empty is most likely a variable that was to be set later, and must not let anybody in or shut all out.
pub(super) fn parse_rule(text: &str) -> Result<Rule, String> {
    if text.trim().is_empty() {
        return Err(
            "an empty rule; give one like uid=0, or leave --allow and PODS_API_ALLOW out: then root and the server's own \
             user may call".into()
        );
    }
    text.parse().map_err(|error: <Rule as std::str::FromStr>::Err| error.to_string())
}

pub(super) fn parse_cgroup_root(text: &str) -> Result<CgroupRoot, String> {
    if text.starts_with("/sys/") {
        return Err("begins with the mount; give the path below it, e.g. /kubelet".into());
    }
    if text.split('/').any(|part| part == "..") {
        return Err("leads upwards; give a path below the cgroup mount, e.g. /kubelet".into());
    }
    Ok(CgroupRoot::new(text))
}

/// Bytes, with an optional binary suffix.
pub(super) fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: usize = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" | "Ki" => 1 << 10,
        "MiB" | "Mi" => 1 << 20,
        "GiB" | "Gi" => 1 << 30,
        other => return Err(format!("unknown unit {other:?}; give one like 256MiB")),
    };
    let amount: usize = digits.parse().map_err(|_| "not a size; give one like 256MiB".to_owned())?;
    amount.checked_mul(unit).ok_or_else(|| "too large".to_owned())
}

/// Bytes of a ring buffer, which the kernel wants as a power of two of pages.
pub(super) fn parse_ring(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        bytes if bytes.is_power_of_two() && (4 << 10..=64 << 20).contains(&bytes) => Ok(bytes as u32),
        _ => Err("not a power of two from 4KiB to 64MiB; give one like 512KiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size("4KiB"), Ok(4096));
        assert_eq!(parse_size("2Gi"), Ok(2 << 30));
        assert!(parse_size("MiB").is_err() && parse_size("99999999999GiB").is_err());
    }
}
