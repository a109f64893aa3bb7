//! The static and the dynamic table (RFC 7541 section 2.3).

use std::collections::VecDeque;

/// What an entry costs beside its bytes (RFC 7541 section 4.1).
pub(super) const ENTRY_OVERHEAD: usize = 32;

/// RFC 7541 appendix A; index 1 comes first.
#[rustfmt::skip]
pub(super) static STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"),
    (b":path", b"/index.html"), (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"),
    (b":status", b"204"), (b":status", b"206"), (b":status", b"304"), (b":status", b"400"),
    (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""), (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""), (b"accept-ranges", b""), (b"accept", b""), (b"access-control-allow-origin", b""),
    (b"age", b""), (b"allow", b""), (b"authorization", b""), (b"cache-control", b""),
    (b"content-disposition", b""), (b"content-encoding", b""), (b"content-language", b""), (b"content-length", b""),
    (b"content-location", b""), (b"content-range", b""), (b"content-type", b""), (b"cookie", b""),
    (b"date", b""), (b"etag", b""), (b"expect", b""), (b"expires", b""),
    (b"from", b""), (b"host", b""), (b"if-match", b""), (b"if-modified-since", b""),
    (b"if-none-match", b""), (b"if-range", b""), (b"if-unmodified-since", b""), (b"last-modified", b""),
    (b"link", b""), (b"location", b""), (b"max-forwards", b""), (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""), (b"range", b""), (b"referer", b""), (b"refresh", b""),
    (b"retry-after", b""), (b"server", b""), (b"set-cookie", b""), (b"strict-transport-security", b""),
    (b"transfer-encoding", b""), (b"user-agent", b""), (b"vary", b""), (b"via", b""),
    (b"www-authenticate", b""),
];

/// The dynamic table. All names and values lie in one buffer, oldest first, so that an insertion allocates nothing
/// once the buffer has grown.
#[derive(Debug)]
pub(super) struct DynamicTable<M> {
    bytes: Vec<u8>,
    /// Newest first, as indices count.
    entries: VecDeque<Entry<M>>,
    size: usize,
    max_size: usize,
}

#[derive(Debug)]
struct Entry<M> {
    start: u32,
    name_len: u32,
    value_len: u32,
    mark: M,
}

impl<M> Entry<M> {
    fn len(&self) -> usize {
        (self.name_len + self.value_len) as usize
    }
}

impl<M: Copy> DynamicTable<M> {
    pub(super) fn new(max_size: usize) -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), size: 0, max_size }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry<M>>()
    }

    pub(super) fn max_size(&self) -> usize {
        self.max_size
    }

    /// Changes the limit and evicts what no longer fits (section 4.3).
    pub(super) fn set_max_size(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict_to(max_size);
    }

    /// The entry at an index that counts from the newest, zero.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8], M)> {
        let entry = self.entries.get(index)?;
        let start = entry.start as usize;
        let (name, value) = self.bytes[start..start + entry.len()].split_at(entry.name_len as usize);
        Some((name, value, entry.mark))
    }

    /// Adds an entry; one that is larger than the table empties it, which is no error (section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], mark: M) {
        if self.make_room(name.len(), value.len()) {
            self.bytes.extend_from_slice(name);
            self.push(name.len(), value, mark);
        }
    }

    /// Adds an entry that has its name in common with an older one, which may be evicted by it.
    pub(super) fn insert_with_name_of(&mut self, index: usize, value: &[u8], mark: M) {
        let Some(entry) = self.entries.get(index) else { return };
        let (start, name_len) = (entry.start as usize, entry.name_len as usize);
        // The bytes of evicted entries stay in the buffer until the gap is closed, which is after this copy.
        if self.make_room(name_len, value.len()) {
            self.bytes.extend_from_within(start..start + name_len);
            self.push(name_len, value, mark);
        }
    }

    /// Evicts until an entry fits; false if it never can.
    fn make_room(&mut self, name_len: usize, value_len: usize) -> bool {
        let rest = self.max_size.checked_sub(ENTRY_OVERHEAD + name_len + value_len);
        self.evict_to(rest.unwrap_or(0));
        rest.is_some()
    }

    /// Adds the entry whose name was just appended to the buffer.
    fn push(&mut self, name_len: usize, value: &[u8], mark: M) {
        let start = self.bytes.len() - name_len;
        self.bytes.extend_from_slice(value);
        self.size += ENTRY_OVERHEAD + name_len + value.len();
        self.entries.push_front(Entry {
            start: start as u32,
            name_len: name_len as u32,
            value_len: value.len() as u32,
            mark,
        });
        self.close_gap();
    }

    fn evict_to(&mut self, size: usize) {
        while self.size > size {
            let oldest = self.entries.pop_back().expect("a table without entries has size zero");
            self.size -= ENTRY_OVERHEAD + oldest.len();
        }
    }

    /// Moves the live bytes to the front once evicted ones are as many as the table may hold, so that the buffer
    /// stays below twice that and each byte is moved once on average.
    fn close_gap(&mut self) {
        let Some(oldest) = self.entries.back() else { return };
        let gap = oldest.start as usize;
        if gap >= self.max_size.max(1024) {
            self.bytes.drain(..gap);
            for entry in &mut self.entries {
                entry.start -= gap as u32;
            }
        }
    }
}

/// The index of a name in the static table, for encoding.
pub(super) fn static_name(name: &[u8]) -> Option<usize> {
    STATIC.iter().position(|&(known, _)| known == name).map(|at| at + 1)
}

/// The index of a whole field in the static table, for encoding.
pub(super) fn static_field(name: &[u8], value: &[u8]) -> Option<usize> {
    STATIC.iter().position(|&field| field == (name, value)).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_newest_entry_comes_first_and_the_oldest_is_evicted() {
        let mut table = DynamicTable::new(2 * (ENTRY_OVERHEAD + 2));
        table.insert(b"a", b"1", 1);
        table.insert(b"b", b"2", 2);
        table.insert_with_name_of(1, b"3", 3);
        assert_eq!(table.get(0), Some((&b"a"[..], &b"3"[..], 3)));
        assert_eq!(table.get(1), Some((&b"b"[..], &b"2"[..], 2)));
        assert_eq!(table.get(2), None);
    }

    // RFC 7541 section 4.4
    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::new(64);
        table.insert(b"a", b"1", ());
        table.insert(b"a", &[b'x'; 32], ());
        assert_eq!((table.get(0), table.size), (None, 0));
        table.insert(b"a", b"1", ());
        table.insert_with_name_of(0, &[b'x'; 32], ());
        assert_eq!((table.get(0), table.size), (None, 0));
    }

    proptest! {
        // The model is what the RFC says: a queue of strings.
        #[test]
        fn it_agrees_with_a_plain_queue(
            max_size in 0usize..400,
            steps in prop::collection::vec((0usize..8, 0usize..40, 0usize..90), 1..400),
        ) {
            let mut table = DynamicTable::new(max_size);
            let mut model: VecDeque<(Vec<u8>, Vec<u8>, usize)> = VecDeque::new();
            for (number, (reuse, name_len, value_len)) in steps.into_iter().enumerate() {
                let value = vec![number as u8; value_len];
                let name = match model.get(reuse) {
                    Some((name, _, _)) => {
                        table.insert_with_name_of(reuse, &value, number);
                        name.clone()
                    }
                    None => {
                        let name = vec![!(number as u8); name_len];
                        table.insert(&name, &value, number);
                        name
                    }
                };
                model.push_front((name, value, number));
                let mut room = max_size;
                let kept = model.iter().take_while(|(name, value, _)| {
                    let size = ENTRY_OVERHEAD + name.len() + value.len();
                    room.checked_sub(size).inspect(|left| room = *left).is_some()
                }).count();
                model.truncate(kept);
                for (at, (name, value, mark)) in model.iter().enumerate() {
                    prop_assert_eq!(table.get(at), Some((&name[..], &value[..], *mark)));
                }
                prop_assert_eq!(table.get(kept), None);
                prop_assert!(table.bytes.len() <= 2 * max_size.max(1024) + 200);
            }
        }
    }
}
