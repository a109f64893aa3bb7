//! The group that may connect.

use super::BindError;
use rustix::fs::Gid;
use std::path::Path;
use std::str::FromStr;

/// A group, by number or by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketGroup {
    /// A group ID.
    Id(u32),
    /// A name in /etc/group.
    Name(String),
}

impl FromStr for SocketGroup {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Id))
    }
}

impl SocketGroup {
    /// Finds the group's number. Only /etc/group is read: name services would need the C library's plug-ins, which a
    /// static binary has not.
    pub(super) fn resolve(&self) -> Result<Gid, BindError> {
        match self {
            Self::Id(id) => Ok(Gid::from_raw(*id)),
            Self::Name(name) => {
                let path = Path::new("/etc/group");
                let table = std::fs::read_to_string(path).map_err(|cause| BindError::Io {
                    action: "read",
                    path: path.into(),
                    cause,
                })?;
                find(&table, name).ok_or_else(|| BindError::UnknownGroup { name: name.clone() })
            }
        }
    }
}

/// Looks a name up in the text of a group(5) file.
fn find(table: &str, name: &str) -> Option<Gid> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok().map(Gid::from_raw)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_group_id_and_anything_else_a_name() {
        assert_eq!("27".parse(), Ok(SocketGroup::Id(27)));
        assert_eq!("adm".parse(), Ok(SocketGroup::Name("adm".into())));
    }

    #[test]
    fn a_name_is_found_whole_and_not_by_prefix() {
        let table = "root:x:0:\nadmin:x:7:a,b\nadm:x:4:\nbroken:x\n";
        assert_eq!(find(table, "adm").map(Gid::as_raw), Some(4));
        assert_eq!(find(table, "broken"), None);
        assert_eq!(find(table, "ad"), None);
    }

    #[test]
    fn an_unknown_name_says_to_give_the_number() {
        let error = SocketGroup::Name("no-such-group".into()).resolve().unwrap_err();
        assert!(error.to_string().contains("--socket-group"), "{error}");
    }
}
