//! Choices of a generator of fuzz test inputs, as a list of numbers that `proptest` can shrink.

use std::collections::BTreeSet;

/// The choices that one input of a fuzz test is generated from. A shorter list with smaller numbers gives a simpler input, so `proptest`
/// shrinks inputs of any format without knowing the format.
#[derive(Debug)]
pub(crate) struct Tape {
    choices: Vec<u16>,
    next: usize,
    /// Denominator of the probability with which a generated value is replaced by a fragment that breaks parsers. 0 disables the
    /// replacement.
    bad_one_in: usize,
    noted: BTreeSet<&'static str>,
}

impl Tape {
    /// Maximum number of choices from which one input of a fuzz test is generated.
    pub(super) const MAX_CHOICES: usize = 400;

    pub(super) fn new(choices: Vec<u16>) -> Self {
        let mut tape = Self {
            choices,
            next: 0,
            bad_one_in: 0,
            noted: BTreeSet::new(),
        };
        tape.bad_one_in = *tape.pick(&[0, 60, 20, 8]);
        tape
    }

    /// Returns a number below `count`, as the next choice of a generator of fuzz test inputs. Returns 0 after the last choice.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let choice = self.choices.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        usize::from(choice) % count
    }

    /// Returns one of `items`, as the next choice of a generator of fuzz test inputs. Returns the first one after the last
    /// choice.
    pub(crate) fn pick<'i, T>(&mut self, items: &'i [T]) -> &'i T {
        &items[self.below(items.len())]
    }

    /// Returns one of `words`, as the next choice of a generator of fuzz test inputs. Returns the first one after the last
    /// choice.
    pub(crate) fn word(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }

    /// Returns `true` with a probability of 1 in `count`, decided by the next choice. Returns `false` after the last choice.
    pub(crate) fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    /// Returns `true` if a fragment that breaks parsers replaces the next generated value, decided by the next choice.
    pub(super) fn is_bad(&mut self) -> bool {
        self.bad_one_in > 0 && self.once_in(self.bad_one_in)
    }

    /// Records, for the statistics, that this fuzz test input contains the named fragment, which is known to break parsers.
    pub(crate) fn note(&mut self, part: &'static str) {
        self.noted.insert(part);
    }

    pub(super) fn into_noted(self) -> BTreeSet<&'static str> {
        self.noted
    }
}
