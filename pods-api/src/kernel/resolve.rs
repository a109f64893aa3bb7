//! Which known pod a cgroup's name means. Pure; any thread.

use super::cgroup_path::UidText;
use crate::pod::{PodUid, Snapshot};

/// The pod that has this text in its cgroup's name: a known one, else what the text can only mean (rule D.3.5).
///
/// Walks all pods where the text is no ordinary UID, which only a manifest can cause that sets its own.
pub(super) fn resolve(text: UidText<'_>, pods: &Snapshot) -> Option<PodUid> {
    let is_known = |uid: &str| pods.get(uid).is_some() || pods.tombstone(uid).is_some();
    let certain = text.certain();
    if let Some(uid) = certain.as_ref().filter(|uid| is_known(uid.as_str())) {
        return Some(uid.clone());
    }
    let known = match text {
        UidText::Verbatim(uid) => is_known(uid).then(|| uid.into()),
        UidText::Escaped(escaped) => {
            let live = pods.iter().map(|pod| pod.uid()).find(|uid| text.names(uid.as_str())).cloned();
            live.or_else(|| {
                let gone = [escaped.to_owned(), escaped.replace('_', "-")];
                gone.into_iter().find(|uid| is_known(uid)).map(PodUid::from)
            })
        }
    };
    known.or(certain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{PodSketch, snapshot_of};

    #[test]
    fn known_pods_win_over_what_a_text_looks_like() {
        const UUID: &str = "1e2d3c4b-0001-0002-0003-000000000004";
        let escaped = UUID.replace('-', "_");
        let of = |uids: &[&str], text: UidText<'_>| {
            let sketches: Vec<_> = uids.iter().map(|uid| PodSketch::new(uid)).collect();
            resolve(text, &snapshot_of(&sketches)).map(|uid| uid.to_string())
        };
        assert_eq!(of(&[], UidText::Escaped(&escaped)).as_deref(), Some(UUID));
        assert_eq!(of(&[UUID, "x"], UidText::Escaped(&escaped)).as_deref(), Some(UUID));
        // A manifest may set a UID with underscores that looks like another's escaped one.
        assert_eq!(of(&[&escaped], UidText::Escaped(&escaped)).as_deref(), Some(&*escaped));
        assert_eq!(of(&["my_pod-1"], UidText::Escaped("my_pod_1")).as_deref(), Some("my_pod-1"));
        assert_eq!(of(&["my_pod-1"], UidText::Verbatim("my_pod_1")), None, "CG-1");
        assert_eq!(of(&["my_pod_1"], UidText::Verbatim("my_pod_1")).as_deref(), Some("my_pod_1"));
        assert_eq!(of(&[], UidText::Escaped("my_pod_1")), None);
    }
}
