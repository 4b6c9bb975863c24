//! Numbers values in the order in which they are first seen, identically for writer and reader.

use std::{collections::HashMap, hash::Hash};

/// Holds at most `most` values. Then writer and reader forget all of them, at the same place.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    most: usize,
    things: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, things: Vec::new(), numbers: HashMap::new() }
    }

    /// For the writer: the number of a known value. A new value gets the next number, and `None` is returned.
    pub(super) fn number(&mut self, thing: T) -> Option<u32> {
        if let Some(number) = self.numbers.get(&thing) {
            return Some(*number);
        }
        if self.numbers.len() >= self.most {
            self.numbers.clear();
        }
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(thing, next);
        None
    }

    /// For the reader: adds a new value.
    pub(super) fn push(&mut self, thing: T) {
        if self.things.len() >= self.most {
            self.things.clear();
        }
        self.things.push(thing);
    }

    /// For the reader: the value of a number.
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.things.get(usize::try_from(number).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_and_writer_forget_at_the_same_place() {
        let (mut written, mut read) = (Numbered::new(3), Numbered::new(3));
        for thing in [1, 2, 1, 3, 4, 3, 4, 1, 2, 2, 9, 4, 1] {
            match written.number(thing) {
                Some(number) => assert_eq!(read.get(number), Some(&thing)),
                None => read.push(thing),
            }
        }
        assert!(read.things.len() <= 3 && written.numbers.len() <= 3);
        assert_eq!(read.get(3), None);
    }
}
