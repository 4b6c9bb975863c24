//! A map of limited size. It drops the least recently used entry and counts what it dropped.

use std::{borrow::Borrow, hash::Hash, num::NonZeroUsize};

use lru::LruCache;

/// At most `MOST` entries; 0 means 1.
#[derive(Debug)]
pub struct Bounded<K: Hash + Eq, V, const MOST: usize> {
    entries: LruCache<K, V>,
    dropped: u64,
}

impl<K: Hash + Eq, V, const MOST: usize> Default for Bounded<K, V, MOST> {
    fn default() -> Self {
        // The table grows on demand: most maps stay far below their capacity.
        let mut entries = LruCache::unbounded();
        entries.resize(NonZeroUsize::new(MOST).unwrap_or(NonZeroUsize::MIN));
        Self { entries, dropped: 0 }
    }
}

impl<K: Hash + Eq + Clone, V, const MOST: usize> Bounded<K, V, MOST> {
    /// Number of entries dropped because the map was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The entry of a key, created if missing. Counts as use.
    pub fn or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if self.entries.len() >= self.entries.cap().get() && !self.entries.contains(&key) {
            self.dropped += 1;
        }
        self.entries.get_or_insert_mut(key, make)
    }

    /// Inserts or replaces the entry of a key.
    pub fn insert(&mut self, key: K, value: V) {
        let full = self.entries.len() >= self.entries.cap().get();
        if full && !self.entries.contains(&key) {
            self.dropped += 1;
        }
        self.entries.put(key, value);
    }

    /// Like [`Self::insert`]; returns the key of the entry that was dropped for it.
    pub fn push(&mut self, key: K, value: V) -> Option<K> {
        let (gone, _) = self.entries.push(key.clone(), value).filter(|(gone, _)| *gone != key)?;
        self.dropped += 1;
        Some(gone)
    }

    /// The entry of a key. Does not count as use.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.peek(key)
    }

    /// The entry of a key, mutable. Counts as use.
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.entries.get_mut(key)
    }

    /// Whether a key has an entry.
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.entries.contains(key)
    }

    /// Removes the entry of a key and returns it.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries.pop(key)
    }

    /// Keeps the entries for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let mut out = Vec::new();
        for (key, value) in &mut self.entries {
            if !keep(key, value) {
                out.push(key.clone());
            }
        }
        for key in out {
            self.entries.pop(&key);
        }
    }

    /// All entries, the most recently used first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    /// All entries, mutable, the most recently used first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_and_is_counted() {
        let mut some = Bounded::<_, _, 2>::default();
        some.insert("a", 1);
        *some.or_insert_with("b", || 2) += 1;
        some.get_mut("a");
        some.or_insert_with("c", || 4);
        assert_eq!((some.len(), some.dropped(), some.get("b")), (2, 1, None));
        some.retain(|_, value| *value > 1);
        assert_eq!(some.iter().collect::<Vec<_>>(), [(&"c", &4)]);
        some.insert("c", 5);
        assert_eq!((some.dropped(), some.remove("c")), (1, Some(5)));
        assert_eq!((some.push("d", 6), some.push("e", 7), some.push("d", 8)), (None, None, None));
        assert_eq!((some.push("f", 9), some.get("d"), some.dropped()), (Some("e"), Some(&8), 2));
    }
}
