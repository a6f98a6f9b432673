/// Counts the tokens that a model reads a text as.
///
/// Any `Fn(&str) -> usize` that may be shared between threads is one, so the tokenizer of a model is a closure away.
///
/// ```
/// use std::sync::Arc;
/// use universal_executor::ContextBudget;
///
/// let words = |text: &str| text.split_whitespace().count();
/// let budget = ContextBudget::default().tokens(500).counter(Arc::new(words));
/// # let _ = budget;
/// ```
pub trait TokenCounter: Send + Sync {
    /// How many tokens a text is. Asked for the pieces of a text, one by one: a counter that gives less for the whole than
    /// for its pieces, as tokenizers do, keeps a budget that is a little too strict.
    fn count(&self, text: &str) -> usize;
}

impl<F: Fn(&str) -> usize + Send + Sync> TokenCounter for F {
    fn count(&self, text: &str) -> usize {
        self(text)
    }
}

/// An estimate that needs no tokenizer: one token for three ASCII letters or blanks, for two other ASCII characters, and
/// for each other character; begun ones included.
///
/// The rule of thumb for English prose is four characters to a token. JSON takes more, since quotes, braces and digits make
/// short tokens. It is an estimate all the same: lists of short numbers may take twice as many, and what is mostly random
/// (ids, hashes, base64) or emoji more than is estimated here. Where that matters, or a limit has to be used to its end,
/// count with the tokenizer of the model.
///
/// ```
/// use universal_executor::executor::{EstimatedTokens, TokenCounter};
///
/// assert_eq!(EstimatedTokens.count(r#"{"n":1}"#), 4);
/// assert_eq!(EstimatedTokens.count("\u{4f60}\u{597d}"), 2);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EstimatedTokens;

impl TokenCounter for EstimatedTokens {
    fn count(&self, text: &str) -> usize {
        let (mut words, mut signs, mut others) = (0_usize, 0_usize, 0_usize);
        for c in text.chars() {
            match c {
                'a'..='z' | 'A'..='Z' | ' ' => words += 1,
                c if c.is_ascii() => signs += 1,
                _ => others += 1,
            }
        }
        words.div_ceil(3) + signs.div_ceil(2) + others
    }
}
