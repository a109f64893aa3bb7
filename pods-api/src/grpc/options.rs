//! What a Pods call asks for by its metadata: fields, pods, and how to be treated when slow.

use super::head::Metadata;
use super::status::decode_bin;
use super::status::{Code, Status};
use crate::access::Grant;
use crate::pod::{Namespace, Selector};
use crate::wire::Mask;

/// The mask that a connection used last, cut down to what its caller may see. Agents send the same one with every call, and parsing it costs more than
/// a GetPod.
#[derive(Debug, Default)]
pub(super) struct MaskCache(Option<(Box<[u8]>, Mask)>);

impl Metadata {
    /// The fields the call asks for and its caller may see. A connection's caller, and so `grant`, is always the same.
    pub(super) fn mask(&self, cache: &mut MaskCache, grant: &Grant) -> Result<Mask, Status> {
        self.not_repeated()?;
        match (&self.field_mask, &self.field_mask_bin) {
            (None, None) => Ok(grant.ceiling.clone()),
            (Some(_), Some(_)) => Err(invalid(
                "invalid field mask: both x-kubernetes-fieldmask and x-kubernetes-fieldmask-bin are given"
                    .into(),
            )),
            (Some(text), None) => cache.get_or_parse(text, grant, |text| {
                let text = std::str::from_utf8(text).map_err(|_| "not UTF-8".to_owned())?;
                Mask::parse(text).map_err(|error| error.to_string())
            }),
            (None, Some(bin)) => cache.get_or_parse(bin, grant, |bin| {
                let encoded = decode_bin(bin).ok_or("x-kubernetes-fieldmask-bin is not base64")?;
                Mask::from_field_mask(&encoded).map_err(|error| error.to_string())
            }),
        }
    }

    /// Which pods the call is about, of those that its caller may see; `None` for all.
    pub(super) fn selector(&self, grant: &Grant) -> Result<Option<Selector>, Status> {
        let namespace = text("x-pods-api-namespace", self.namespace.as_deref())?;
        let labels = text("x-pods-api-labels", self.labels.as_deref())?;
        if let Some(name) = namespace
            && !Namespace::is_valid(name)
        {
            return Err(invalid(format!("x-pods-api-namespace: {name:?} is not the name of a namespace")));
        }
        let selector = Selector::parse(labels.unwrap_or_default())
            .map_err(|error| invalid(format!("x-pods-api-labels: {error}")))?
            .in_namespace(namespace.map(Namespace::from));
        let wanted = (!selector.is_everything()).then_some(selector);
        grant.selection(wanted).map_err(|hidden| {
            let rule = &grant.rule;
            let message = format!("selecting by {hidden} would show it, and the rule {rule:?} does not");
            Status::new(Code::PermissionDenied, message)
        })
    }

    /// Whether a slow watch gets the newest state of each pod instead of being ended.
    pub(super) fn coalesce(&self) -> Result<bool, Status> {
        match self.slow.as_deref() {
            None => Ok(false),
            Some(b"coalesce") => Ok(true),
            Some(other) => Err(invalid(format!(
                "x-pods-api-slow: {:?} is unknown; it can be coalesce",
                String::from_utf8_lossy(other)
            ))),
        }
    }

    fn not_repeated(&self) -> Result<(), Status> {
        match self.repeated {
            None => Ok(()),
            Some(name) => Err(invalid(format!("{name} is given more than once"))),
        }
    }
}

impl MaskCache {
    fn get_or_parse(
        &mut self,
        value: &[u8],
        grant: &Grant,
        parse: impl FnOnce(&[u8]) -> Result<Mask, String>,
    ) -> Result<Mask, Status> {
        // The text and the binary form of a mask are never the same bytes: a text that is base64 has no path in it.
        if let Some((known, mask)) = &self.0
            && **known == *value
        {
            return Ok(mask.clone());
        }
        let mask = parse(value).map_err(|reason| invalid(format!("invalid field mask: {reason}")))?;
        let mask = mask.intersection(&grant.ceiling);
        self.0 = Some((value.into(), mask.clone()));
        Ok(mask)
    }
}

fn invalid(message: String) -> Status {
    Status::new(Code::InvalidArgument, message)
}

fn text<'a>(name: &str, value: Option<&'a [u8]>) -> Result<Option<&'a str>, Status> {
    let Some(value) = value.map(<[u8]>::trim_ascii).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    std::str::from_utf8(value).map(Some).map_err(|_| invalid(format!("{name} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::super::status::encode_bin;
    use super::*;
    use prost::Message as _;

    fn mask_of(metadata: &Metadata) -> Result<Mask, String> {
        metadata.mask(&mut MaskCache::default(), &everything()).map_err(|status| {
            assert_eq!(status.code, Code::InvalidArgument);
            status.message
        })
    }

    fn everything() -> Grant {
        Grant::of_everything("uid=0")
    }

    fn bytes(text: &str) -> Option<Box<[u8]>> {
        Some(text.as_bytes().into())
    }

    #[test]
    fn both_forms_of_a_mask_are_read() {
        let expected = Mask::parse("status.podIPs,metadata.name").unwrap();
        let text = Metadata { field_mask: bytes(" metadata.name , status.podIPs"), ..Default::default() };
        assert_eq!(mask_of(&text), Ok(expected.clone()));
        let paths = vec!["metadata.name".into(), "status.podIPs".into()];
        let encoded = encode_bin(&prost_types::FieldMask { paths }.encode_to_vec());
        let bin = Metadata { field_mask_bin: bytes(&encoded), ..Default::default() };
        assert_eq!(mask_of(&bin), Ok(expected));
        assert_eq!(mask_of(&Metadata::default()), Ok(Mask::All));
        // rules F.1.2 and F.1.6
        for whole in ["", "*"] {
            assert_eq!(mask_of(&Metadata { field_mask: bytes(whole), ..Default::default() }), Ok(Mask::All));
        }
    }

    #[test]
    fn a_mask_that_no_pod_has_is_refused_by_name() {
        // MASK-2, MASK-4, MASK-5
        for (text, named) in [
            ("spec.nope", "spec.nope"),
            ("metadata.name,status.podIps", "status.podIps"),
            ("status.pod_ips", "status.pod_ips"),
            ("spec..x", "spec..x"),
            ("spec.foo-bar,metadata", "spec.foo-bar"),
            ("metadata.name.first", "metadata.name.first"),
            ("*,metadata", "*"),
        ] {
            let error = mask_of(&Metadata { field_mask: bytes(text), ..Default::default() }).unwrap_err();
            assert!(error.starts_with("invalid field mask: ") && error.contains(named), "{text}: {error}");
        }
        let both = Metadata { field_mask: bytes("spec"), field_mask_bin: bytes(""), ..Default::default() };
        assert!(mask_of(&both).unwrap_err().contains("both"));
        let twice = Metadata { repeated: Some("x-kubernetes-fieldmask"), ..Default::default() };
        assert!(mask_of(&twice).unwrap_err().contains("more than once"));
        let bad = Metadata { field_mask_bin: bytes("!"), ..Default::default() };
        assert!(mask_of(&bad).unwrap_err().contains("not base64"));
    }

    #[test]
    fn a_connections_last_mask_is_not_parsed_again() {
        let mut cache = MaskCache::default();
        let metadata = Metadata { field_mask: bytes("metadata.name"), ..Default::default() };
        let first = metadata.mask(&mut cache, &everything()).unwrap();
        let (Mask::Some(first), Mask::Some(second)) =
            (first, metadata.mask(&mut cache, &everything()).unwrap())
        else {
            panic!("a selection")
        };
        assert!(std::sync::Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn selectors_are_read_and_refused_with_a_place() {
        let metadata =
            Metadata { namespace: bytes("shop"), labels: bytes("app in (a,b)"), ..Default::default() };
        let selector = metadata.selector(&everything()).unwrap().unwrap();
        assert!(selector.matches(&"shop".into(), |_| Some("b")));
        assert!(!selector.matches(&"other".into(), |_| Some("b")));
        assert_eq!(Metadata::default().selector(&everything()).unwrap(), None);
        let bad =
            Metadata { labels: bytes("app in b"), ..Default::default() }.selector(&everything()).unwrap_err();
        assert_eq!(
            &*bad.message,
            "x-pods-api-labels: invalid label selector at byte 7: expected `(` and a list of values"
        );
        let bad =
            Metadata { namespace: bytes("Shop"), ..Default::default() }.selector(&everything()).unwrap_err();
        assert_eq!(bad.code, Code::InvalidArgument);
        let bad = Metadata { slow: bytes("drop"), ..Default::default() }.coalesce().unwrap_err();
        assert!(bad.message.contains("it can be coalesce"), "{bad}");
    }
}
