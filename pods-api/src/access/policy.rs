//! Who may call: the rules in order, of which the first that is about the caller decides. No I/O.
//!
//! A rule about namespaces or service accounts needs the caller's pod, which may not have been published yet; and any
//! rule about pods needs to know whether the caller runs in one, which a caller can keep from us. Such a rule is then
//! neither passed over nor obeyed: the call is refused, and the next one decided anew. Passing it over could end at a
//! later rule that grants more.

use super::grant::Grant;
use super::peer::Peer;
use super::rule::{Rule, Subject};
use crate::pod::{Namespace, PodUid, Record, Snapshot};
use crate::wire::PodView;
use prost::Message as _;
use std::sync::Arc;

/// The access policy.
#[derive(Debug, Clone)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// What the policy says of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The first rule about the caller grants this.
    Granted(Arc<Grant>),
    /// No rule is about the caller.
    Refused,
    /// Depends on a rule about pods, which cannot be decided: the caller's pod is not known yet, or the caller is unknown
    /// and will stay so.
    Undecided(Arc<Grant>),
}

/// What rules ask of a caller's pod. It does not change while the pod lives.
#[derive(Debug)]
struct Account {
    namespace: Namespace,
    name: String,
}

impl Policy {
    /// The policy of these rules, in order.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// Everything for root and for the user that the server runs as.
    #[must_use]
    pub fn for_root_and(uid: u32) -> Self {
        let mut rules = vec![Rule::everything_for_uid(0)];
        rules.extend((uid != 0).then(|| Rule::everything_for_uid(uid)));
        Self { rules }
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Decides about a caller, with what is known of its pod now. Only [`Decision::Undecided`] can change later.
    #[must_use]
    pub fn decide(&self, peer: &Peer, pods: &Snapshot) -> Decision {
        let pod = peer.pod();
        // Looked up only if a rule asks for it.
        let mut account = None;
        for rule in &self.rules {
            let is_about = match &rule.subject {
                Subject::Uid(uid) => peer.uid == *uid,
                Subject::Gid(gid) => peer.is_in_group(*gid),
                Subject::Unknown => !peer.is_known(),
                // It may run in just that pod: whoever connects and ends before it is looked at is unknown.
                subject if subject.is_about_pods() && !peer.is_known() => {
                    return Decision::Undecided(rule.grant.clone());
                }
                Subject::PodUid(uid) => pod == Some(uid),
                Subject::Namespace(_) | Subject::ServiceAccount { .. } => {
                    let Some(pod) = pod else { continue };
                    match account.get_or_insert_with(|| Account::of_pod(pod, pods)) {
                        Some(account) => account.is_of(&rule.subject),
                        None => return Decision::Undecided(rule.grant.clone()),
                    }
                }
            };
            if is_about {
                return Decision::Granted(rule.grant.clone());
            }
        }
        Decision::Refused
    }

    /// The narrowest rule that would be about a caller.
    #[must_use]
    pub fn admitting(peer: &Peer, pods: &Snapshot) -> Subject {
        let Some(pod) = peer.pod() else { return Subject::Uid(peer.uid) };
        match Account::of_pod(pod, pods) {
            None => Subject::PodUid(pod.clone()),
            Some(Account { namespace, name }) if name.is_empty() => Subject::Namespace(namespace),
            Some(Account { namespace, name }) => Subject::ServiceAccount { namespace, name: name.into() },
        }
    }
}

impl Account {
    fn of_pod(uid: &PodUid, pods: &Snapshot) -> Option<Self> {
        pods.get(uid.as_str()).map(|record| Self::of(record))
    }

    fn of(record: &Record) -> Self {
        let spec = PodView::parse(record.pod_bytes()).ok().and_then(|pod| PodSpec::decode(pod.spec).ok());
        let name = spec.and_then(|spec| spec.service_account_name).unwrap_or_default();
        Self { namespace: record.namespace().clone(), name }
    }

    fn is_of(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Namespace(namespace) => self.namespace == *namespace,
            Subject::ServiceAccount { namespace, name } => {
                self.namespace == *namespace && *self.name == **name
            }
            Subject::Uid(_) | Subject::Gid(_) | Subject::PodUid(_) | Subject::Unknown => false,
        }
    }
}

/// core/v1 PodSpec, as far as it is read here: it may be large.
#[derive(Clone, PartialEq, prost::Message)]
struct PodSpec {
    #[prost(string, optional, tag = "8")]
    service_account_name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::identity::Identity;
    use super::*;
    use crate::pod::testing::{PodSketch, snapshot_of};

    fn policy(rules: &[&str]) -> Policy {
        Policy::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    fn peer(identity: Identity) -> Peer {
        Peer { identity, ..Peer::unknown(1000, 100) }
    }

    fn in_pod(uid: &str) -> Peer {
        peer(Identity::Pod { uid: uid.into(), container: None })
    }

    fn pods() -> Snapshot {
        let agent = PodSketch::new("u-agent").namespace("monitoring").service_account("agent");
        let plain = PodSketch::new("u-plain").namespace("shop");
        snapshot_of(&[agent, plain])
    }

    /// The rule that decides, `-` for refused, `?rule` for undecided.
    fn decision(policy: &Policy, peer: &Peer) -> String {
        match policy.decide(peer, &pods()) {
            Decision::Granted(grant) => grant.rule.to_string(),
            Decision::Refused => "-".to_owned(),
            Decision::Undecided(grant) => format!("?{}", grant.rule),
        }
    }

    #[test]
    fn the_first_rule_about_the_caller_decides() {
        let policy = policy(&[
            "serviceaccount=monitoring/agent",
            "namespace=monitoring,methods=list",
            "pod-uid=u-plain",
            "gid=100,methods=get",
            "uid=1000",
            "unknown",
        ]);
        assert_eq!(decision(&policy, &in_pod("u-agent")), "serviceaccount=monitoring/agent");
        assert_eq!(decision(&policy, &in_pod("u-plain")), "pod-uid=u-plain");
        assert_eq!(decision(&policy, &peer(Identity::Host)), "gid=100,methods=get");
        let other = Peer { gid: 5, ..peer(Identity::Host) };
        assert_eq!(decision(&policy, &other), "uid=1000");
        let supplementary = Peer { gid: 5, groups: [7, 100].into_iter().collect(), ..peer(Identity::Host) };
        assert_eq!(decision(&policy, &supplementary), "gid=100,methods=get");
        assert_eq!(decision(&policy, &Peer::unknown(2, 2)), "?serviceaccount=monitoring/agent");
        assert_eq!(decision(&policy, &Peer { uid: 2, gid: 2, ..peer(Identity::Host) }), "-");
    }

    #[test]
    fn an_unknown_caller_cannot_get_past_a_rule_about_pods() {
        let unknown = peer(Identity::Unknown);
        for rule in ["namespace=shop,fields=metadata.name", "pod-uid=u-plain", "serviceaccount=shop/x"] {
            // What it is sure to be may stand before.
            for (rules, expected) in [
                (vec![rule, "uid=1000", "unknown"], format!("?{rule}")),
                (vec!["uid=2", rule], format!("?{rule}")),
                (vec!["uid=1000", rule], "uid=1000".into()),
                (vec!["unknown,methods=get", rule], "unknown,methods=get".into()),
            ] {
                assert_eq!(decision(&policy(&rules), &unknown), expected, "{rules:?}");
            }
            // A process of the host is in no pod for sure.
            assert_eq!(decision(&policy(&[rule, "uid=1000"]), &peer(Identity::Host)), "uid=1000");
            assert_eq!(decision(&policy(&[rule]), &peer(Identity::Host)), "-");
        }
        // A known caller is not unknown.
        assert_eq!(decision(&policy(&["unknown"]), &peer(Identity::Host)), "-");
        assert_eq!(decision(&policy(&["unknown"]), &in_pod("u-agent")), "-");
    }

    #[test]
    fn a_rule_that_cannot_be_decided_yet_is_not_passed_over() {
        let strict_first = policy(&["namespace=untrusted,fields=metadata.name", "uid=1000"]);
        assert_eq!(decision(&strict_first, &in_pod("u-new")), "?namespace=untrusted,fields=metadata.name");
        assert_eq!(decision(&policy(&["uid=1000", "namespace=shop"]), &in_pod("u-new")), "uid=1000");
        assert_eq!(
            decision(&policy(&["pod-uid=u-new", "namespace=shop"]), &in_pod("u-new")),
            "pod-uid=u-new"
        );
        assert_eq!(decision(&policy(&["uid=1"]), &in_pod("u-new")), "-");
    }

    #[test]
    fn the_default_is_root_and_the_servers_own_user() {
        let rules =
            |uid| Policy::for_root_and(uid).rules().iter().map(|rule| rule.subject.to_string()).collect();
        let (root, other): (Vec<_>, Vec<_>) = (rules(0), rules(1000));
        assert_eq!(
            (root, other),
            (vec!["uid=0".to_owned()], vec!["uid=0".to_owned(), "uid=1000".to_owned()])
        );
    }

    #[test]
    fn the_rule_that_would_admit_is_the_narrowest() {
        for (peer, expected) in [
            (in_pod("u-agent"), "serviceaccount=monitoring/agent"),
            (in_pod("u-plain"), "namespace=shop"),
            (in_pod("u-new"), "pod-uid=u-new"),
            (peer(Identity::Host), "uid=1000"),
            (peer(Identity::Unknown), "uid=1000"),
        ] {
            let subject = Policy::admitting(&peer, &pods());
            assert_eq!(subject.to_string(), expected);
            let rule = expected.parse().unwrap();
            assert!(matches!(Policy::new(vec![rule]).decide(&peer, &pods()), Decision::Granted(_)));
        }
    }
}
