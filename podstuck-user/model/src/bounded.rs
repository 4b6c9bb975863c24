//! A memory of limited size: what was used longest ago goes first, and is counted.

use std::{borrow::Borrow, hash::Hash, num::NonZeroUsize};

use lru::LruCache;

/// At most so many entries.
#[derive(Debug)]
pub struct Bounded<K: Hash + Eq, V> {
    entries: LruCache<K, V>,
    dropped: u64,
}

impl<K: Hash + Eq + Clone, V> Bounded<K, V> {
    /// Empty. A capacity of 0 is taken for 1.
    pub fn new(capacity: usize) -> Self {
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        // Grows as it is filled: most stay far below their capacity.
        let mut entries = LruCache::unbounded();
        entries.resize(capacity);
        Self { entries, dropped: 0 }
    }

    /// How many entries had to go because there were too many.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The entry of a key, which counts as used; made where there is none.
    pub fn or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if self.entries.len() >= self.entries.cap().get() && !self.entries.contains(&key) {
            self.dropped += 1;
        }
        self.entries.get_or_insert_mut(key, make)
    }

    /// Puts an entry in the place of the one that a key has.
    pub fn insert(&mut self, key: K, value: V) {
        let full = self.entries.len() >= self.entries.cap().get();
        if full && !self.entries.contains(&key) {
            self.dropped += 1;
        }
        self.entries.put(key, value);
    }

    /// The same; the key whose entry had to go for it.
    pub fn push(&mut self, key: K, value: V) -> Option<K> {
        let (gone, _) = self.entries.push(key.clone(), value).filter(|(gone, _)| *gone != key)?;
        self.dropped += 1;
        Some(gone)
    }

    /// The entry of a key. That does not count as use.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.peek(key)
    }

    /// The entry of a key, to be changed; counts as use.
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

    /// Takes the entry of a key out.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries.pop(key)
    }

    /// Keeps the entries for which this is so.
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

    /// All entries, the one used last first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_and_is_counted() {
        let mut some = Bounded::new(2);
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
