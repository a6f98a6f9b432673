//! How fast an event finds the subscriptions it matches.

fn main() {}
