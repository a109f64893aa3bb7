//! One rule of the access policy: whom it is about, and what they may. Reads `--allow`.
//!
//! ```text
//! namespace=monitoring,methods=list+watch,fields=metadata.name+status.podIPs,namespaces=shop+web,profile=no-env
//! ```

use super::grant::{Grant, Operation, Operations};
use crate::pod::{Namespace, PodUid};
use crate::wire::{Mask, split_unquoted};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Whom a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Callers of that effective user, whether or not their process could be made sure of.
    Uid(u32),
    /// Callers of that effective or supplementary group, likewise.
    Gid(u32),
    /// Callers in pods of that namespace.
    Namespace(Namespace),
    /// Callers in pods of that service account.
    ServiceAccount {
        /// The account's namespace.
        namespace: Namespace,
        /// The account's name.
        name: Box<str>,
    },
    /// Callers in that pod.
    PodUid(PodUid),
    /// Callers of which could not be made sure whether and in which pod they run.
    Unknown,
}

/// A rule: a subject and what it grants.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Whom it is about.
    pub subject: Subject,
    /// What they may.
    pub grant: Arc<Grant>,
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule:?}, at {part:?}: {reason}")]
pub struct RuleError {
    /// The rule as given.
    pub rule: String,
    /// The part that is wrong.
    pub part: String,
    /// What is wrong with it, and what would be right.
    pub reason: String,
}

const SUBJECTS: &str =
    "a rule begins with uid=N, gid=N, namespace=NS, serviceaccount=NS/NAME, pod-uid=UID or unknown";
const OPTIONS: &str =
    "after it may stand methods=list+get+watch+lookup, fields=a.b+c.d, namespaces=a+b and profile=no-env";

impl Rule {
    /// A rule that lets a user do everything.
    #[must_use]
    pub fn everything_for_uid(uid: u32) -> Self {
        let rule = format!("uid={uid}");
        Self { subject: Subject::Uid(uid), grant: Arc::new(Grant::of_everything(&rule)) }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut parts = split_unquoted(text, ',').map(str::trim);
        let at = |part: &str, reason: String| RuleError { rule: text.into(), part: part.into(), reason };
        let first = parts.next().unwrap_or_default();
        let subject = subject(first).map_err(|reason| at(first, reason))?;
        let mut grant = Grant::of_everything(text);
        let mut given = BTreeSet::new();
        for part in parts {
            let Some((name, value)) = part.split_once('=') else {
                return Err(at(part, OPTIONS.to_owned()));
            };
            if !given.insert(name) {
                return Err(at(part, format!("{name} is given twice; join the values by +")));
            }
            match name {
                "methods" => operations(value).map(|operations| grant.operations = operations),
                "fields" => fields(value).map(|fields| grant.ceiling = grant.ceiling.intersection(&fields)),
                "namespaces" => namespaces(value).map(|namespaces| grant.namespaces = Some(namespaces)),
                "profile" if value == "no-env" => {
                    grant.ceiling = grant.ceiling.difference(&environment());
                    Ok(())
                }
                "profile" => Err("the one profile is no-env".to_owned()),
                _ => Err(OPTIONS.to_owned()),
            }
            .map_err(|reason| at(part, reason))?;
        }
        Ok(Self { subject, grant: Arc::new(grant) })
    }
}

impl Subject {
    /// Whether only callers in pods can be meant.
    pub(super) fn is_about_pods(&self) -> bool {
        matches!(self, Self::Namespace(_) | Self::ServiceAccount { .. } | Self::PodUid(_))
    }
}

impl fmt::Display for Subject {
    /// Writes the subject as a rule begins with it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uid(uid) => write!(f, "uid={uid}"),
            Self::Gid(gid) => write!(f, "gid={gid}"),
            Self::Namespace(namespace) => write!(f, "namespace={namespace}"),
            Self::ServiceAccount { namespace, name } => write!(f, "serviceaccount={namespace}/{name}"),
            Self::PodUid(uid) => write!(f, "pod-uid={uid}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// What the profile `no-env` hides: the environment of every kind of container, and where it is found again: the
/// manifest that `kubectl apply` leaves in an annotation, and the record of who set which field.
const ENVIRONMENT: &str = "spec.containers.env,spec.containers.envFrom,\
    spec.initContainers.env,spec.initContainers.envFrom,\
    spec.ephemeralContainers.env,spec.ephemeralContainers.envFrom,\
    metadata.annotations.`kubectl.kubernetes.io/last-applied-configuration`,metadata.managedFields";

fn environment() -> Mask {
    Mask::parse(ENVIRONMENT).expect("these are fields of a Pod")
}

fn subject(text: &str) -> Result<Subject, String> {
    if text == "unknown" {
        return Ok(Subject::Unknown);
    }
    let (name, value) = text.split_once('=').ok_or_else(|| SUBJECTS.to_owned())?;
    match name {
        "uid" => Ok(Subject::Uid(number(value)?)),
        "gid" => Ok(Subject::Gid(number(value)?)),
        "namespace" => Ok(Subject::Namespace(namespace(value)?)),
        "serviceaccount" => match value.split_once('/') {
            Some((of, name)) if is_account(name) => {
                Ok(Subject::ServiceAccount { namespace: namespace(of)?, name: name.into() })
            }
            _ => Err("give it as NAMESPACE/NAME".to_owned()),
        },
        "pod-uid" if value.is_empty() => Err("the UID is missing".to_owned()),
        "pod-uid" => Ok(Subject::PodUid(value.into())),
        _ => Err(SUBJECTS.to_owned()),
    }
}

/// A user or group; the highest number means "none" to the kernel.
fn number(text: &str) -> Result<u32, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if is_number && number != u32::MAX => Ok(number),
        _ => Err("not the number of a user or group; `id` shows numbers by name".to_owned()),
    }
}

fn namespace(text: &str) -> Result<Namespace, String> {
    if Namespace::is_valid(text) {
        Ok(text.into())
    } else {
        Err(format!("{text:?} is not the name of a namespace"))
    }
}

/// The name of a service account: a DNS subdomain.
fn is_account(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
}

fn operations(text: &str) -> Result<Operations, String> {
    let mut operations = Operations::NONE;
    for name in text.split('+') {
        let operation = Operation::ALL.into_iter().find(|operation| operation.as_str() == name);
        operations.add(operation.ok_or_else(|| format!("{name:?} is none of list, get, watch and lookup"))?);
    }
    Ok(operations)
}

fn fields(text: &str) -> Result<Mask, String> {
    if text.is_empty() {
        return Err("no field is named".to_owned());
    }
    let paths: Vec<_> = split_unquoted(text, '+').collect();
    Mask::parse(&paths.join(",")).map_err(|error| error.to_string())
}

fn namespaces(text: &str) -> Result<BTreeSet<Namespace>, String> {
    text.split('+').map(namespace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    #[test]
    fn every_subject_is_read_and_written_the_same() {
        for text in [
            "uid=0",
            "gid=990",
            "namespace=kube-system",
            "serviceaccount=kube-system/cilium",
            "pod-uid=1e2d3c4b-0001-0002-0003-000000000004",
            "unknown",
        ] {
            let rule = rule(text);
            assert_eq!(rule.subject.to_string(), text);
            assert!(rule.grant.is_unrestricted(), "{text}");
            assert_eq!(&*rule.grant.rule, text);
        }
    }

    #[test]
    fn options_restrict_what_is_granted() {
        let rule =
            rule("uid=7,methods=list+lookup, namespaces=a+b ,fields=metadata.name+metadata.labels.`x+y,z`");
        let grant = &rule.grant;
        assert!(grant.allows(Operation::List) && grant.allows(Operation::Lookup));
        assert!(!grant.allows(Operation::Get) && !grant.allows(Operation::Watch));
        assert!(grant.shows_namespace(&"b".into()) && !grant.shows_namespace(&"c".into()));
        assert_eq!(grant.ceiling, Mask::parse("metadata.name,metadata.labels.`x+y,z`").unwrap());
        assert!(!grant.is_unrestricted());
        assert!(self::rule("uid=7,fields=*").grant.is_unrestricted());
    }

    #[test]
    fn profile_no_env_hides_every_environment_and_nothing_else() {
        let ceiling = &rule("uid=7,profile=no-env").grant.ceiling;
        for kind in ["containers", "initContainers", "ephemeralContainers"] {
            for hidden in ["env", "env.name", "env.value", "env.valueFrom", "envFrom"] {
                assert!(!ceiling.contains(&format!("spec.{kind}.{hidden}")), "{kind}.{hidden}");
            }
            for shown in ["name", "image", "command", "ports", "volumeMounts"] {
                assert!(ceiling.contains(&format!("spec.{kind}.{shown}")), "{kind}.{shown}");
            }
        }
        let applied = "metadata.annotations.`kubectl.kubernetes.io/last-applied-configuration`";
        for hidden in [applied, "metadata.managedFields"] {
            assert!(!ceiling.contains(hidden), "{hidden}");
        }
        for shown in ["metadata.uid", "metadata.annotations.`x`", "status", "spec.volumes", "spec.nodeName"] {
            assert!(ceiling.contains(shown), "{shown}");
        }
        // Both orders of the two options mean the same.
        let fields = "fields=spec.containers+metadata.name";
        let (one, other) = (
            rule(&format!("uid=7,profile=no-env,{fields}")),
            rule(&format!("uid=7,{fields},profile=no-env")),
        );
        assert_eq!(one.grant.ceiling, other.grant.ceiling);
        assert!(!one.grant.ceiling.contains("spec.containers.env"));
        assert!(one.grant.ceiling.contains("spec.containers.image"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place_and_what_would_be_right() {
        for (text, part, reason) in [
            ("", "", "a rule begins with uid=N"),
            ("root", "root", "a rule begins with uid=N"),
            ("user=0", "user=0", "a rule begins with uid=N"),
            ("uid=root", "uid=root", "not the number of a user or group"),
            ("uid=-1", "uid=-1", "not the number"),
            ("uid=+1", "uid=+1", "not the number"),
            ("gid=4294967295", "gid=4294967295", "not the number"),
            ("namespace=Kube", "namespace=Kube", "not the name of a namespace"),
            ("serviceaccount=cilium", "serviceaccount=cilium", "NAMESPACE/NAME"),
            ("serviceaccount=a/", "serviceaccount=a/", "NAMESPACE/NAME"),
            ("pod-uid=", "pod-uid=", "the UID is missing"),
            ("uid=0,list", "list", "methods=list+get+watch+lookup"),
            ("uid=0,method=list", "method=list", "methods=list+get+watch+lookup"),
            ("uid=0,methods=list+put", "methods=list+put", "\"put\" is none of list, get, watch and lookup"),
            ("uid=0,methods=", "methods=", "\"\" is none of"),
            ("uid=0,fields=metadata.name+spec.nope", "fields=metadata.name+spec.nope", "spec.nope"),
            ("uid=0,fields=", "fields=", "no field is named"),
            ("uid=0,namespaces=a+", "namespaces=a+", "not the name of a namespace"),
            ("uid=0,profile=none", "profile=none", "the one profile is no-env"),
            ("uid=0,methods=get,methods=list", "methods=list", "given twice"),
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert_eq!((&*error.rule, &*error.part), (text, part));
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
