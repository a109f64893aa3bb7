//! The syntax of names, keys and label values (apimachinery's pkg/util/validation). Each check says what is right.

const LABEL: &str = "at most 63 lower case letters, digits and '-', with a letter or digit at both ends";
const SUBDOMAIN: &str =
    "at most 253 lower case letters, digits, '-' and '.', each part with a letter or digit at both ends";
const QUALIFIED: &str = "a name of at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, \
     after an optional DNS name and '/'";
const LABEL_VALUE: &str = "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";
const PORT_NAME: &str =
    "at most 15 lower case letters, digits and single '-', at least one letter, no '-' at the ends";
const VARIABLE: &str = "one or more printable ASCII characters other than '='";

/// What is wanted, where the value is not that.
pub(super) type Verdict = Result<(), &'static str>;

fn verdict(holds: bool, wanted: &'static str) -> Verdict {
    if holds { Ok(()) } else { Err(wanted) }
}

/// RFC 1123 label: a container, volume or namespace name.
pub(super) fn dns_label(text: &str) -> Verdict {
    verdict(is_dns_label(text) && text.len() <= 63, LABEL)
}

/// RFC 1123 subdomain: a pod name.
pub(super) fn dns_subdomain(text: &str) -> Verdict {
    verdict(is_dns_subdomain(text), SUBDOMAIN)
}

/// A label key, annotation key or resource name.
pub(super) fn qualified_name(text: &str) -> Verdict {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let holds = prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_text(name);
    verdict(holds, QUALIFIED)
}

/// A label's value, which may be empty.
pub(super) fn label_value(text: &str) -> Verdict {
    verdict(text.is_empty() || is_label_text(text), LABEL_VALUE)
}

/// The name of a container port (RFC 6335 section 5.1).
pub(super) fn port_name(text: &str) -> Verdict {
    let holds = (1..=15).contains(&text.len())
        && text.bytes().all(|byte| is_lower(byte) || byte == b'-')
        && text.bytes().any(|byte| byte.is_ascii_lowercase())
        && !text.contains("--")
        && !text.starts_with('-')
        && !text.ends_with('-');
    verdict(holds, PORT_NAME)
}

/// The name of an environment variable, by the relaxed rule that newer kubelets have.
pub(super) fn variable_name(text: &str) -> Verdict {
    let holds = !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=');
    verdict(holds, VARIABLE)
}

fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|&byte| is_lower(byte) || byte == b'-')
        && bytes.first().is_some_and(|&byte| is_lower(byte))
        && bytes.last().is_some_and(|&byte| is_lower(byte))
}

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.iter().all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn table(check: fn(&str) -> Verdict, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(check(text).is_ok(), "{text:?} should pass");
        }
        for text in bad {
            assert!(check(text).is_err(), "{text:?} should fail");
        }
    }

    #[test]
    fn dns_names_have_their_syntax_and_length() {
        let long = "a".repeat(63);
        let longer = "a".repeat(64);
        table(dns_label, &["a", "a-1", "1", &long], &["", "-a", "a-", "A", "a.b", "a_b", "é", &longer]);
        // 253 characters pass, 254 do not, and a part has no limit of its own.
        let most = format!("{}.{}", "a".repeat(126), "b".repeat(126));
        table(
            dns_subdomain,
            &["a", "a.b-c.d", &longer, &most],
            &["", ".a", "a.", "a..b", "A", "a\0", &(most.clone() + "c")],
        );
    }

    #[test]
    fn keys_and_values_have_their_syntax() {
        table(
            qualified_name,
            &["a", "A_b.c-d", "k8s.io/Name", "1"],
            &["", "/a", "a/", "A.io/a", "a/b/c", "-a", "a b"],
        );
        table(label_value, &["", "v1.2_3-X"], &["-", "a b", "a/b", &"a".repeat(64)]);
        table(port_name, &["http", "a1", "a-b"], &["", "80", "-a", "a-", "a--b", "Http", "abcdefghijklmnop"]);
        table(variable_name, &["PATH", "a.b", "1", "with space"], &["", "a=b", "a\0", "é"]);
    }
}
