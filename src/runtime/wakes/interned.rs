//! Interning of values that many entries in the index of suspended runs share, such as executor IDs.

use std::collections::HashMap;
use std::hash::Hash;

/// Set that stores each distinct value once, with a reference count and an identifying number. A value is removed once it is
/// released as often as it was acquired.
#[derive(Debug)]
pub(super) struct Interned<T> {
    values: Vec<Option<(T, usize)>>,
    numbers: HashMap<T, u32>,
    free: Vec<u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            numbers: HashMap::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Interned<T> {
    /// Adds a value to the set, or increments its reference count, and returns the number that identifies the value.
    pub(super) fn acquire(&mut self, value: &T) -> u32 {
        if let Some(number) = self.numbers.get(value) {
            if let Some(Some((_, uses))) = self.values.get_mut(index(*number)) {
                *uses += 1;
            }
            return *number;
        }
        let new = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        let number = self.free.pop().unwrap_or(new);
        self.numbers.insert(value.clone(), number);
        let value = Some((value.clone(), 1));
        match self.values.get_mut(index(number)) {
            Some(slot) => *slot = value,
            None => self.values.push(value),
        }
        number
    }

    /// Decrements the reference count of the value with this number, and removes and returns the value once the count is zero.
    pub(super) fn release(&mut self, number: u32) -> Option<T> {
        let slot = self.values.get_mut(index(number))?;
        let (_, uses) = slot.as_mut()?;
        *uses -= 1;
        if *uses > 0 {
            return None;
        }
        let (value, _) = slot.take()?;
        self.numbers.remove(&value);
        self.free.push(number);
        Some(value)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub(super) fn find(&self, value: &T) -> Option<u32> {
        self.numbers.get(value).copied()
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        let value = self.values.get(index(number))?.as_ref();
        value.map(|(value, _)| value)
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
