/// Counter of the tokens of a text, for a [`ContextBudget`](super::ContextBudget).
///
/// Every `Fn(&str) -> usize` that is `Send` and `Sync` implements this trait, so a closure can call the tokenizer of a model.
///
/// A counter is called for each part of a context, so it should be fast. [`EstimatedTokens`] is the
/// default.
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
    /// Returns the number of tokens of a text.
    ///
    /// A budget calls this method for each piece of the rendered text and adds the results. Tokenizers often return fewer tokens for
    /// the whole text than for its pieces, so a budget is slightly stricter than its limit.
    fn count(&self, text: &str) -> usize;
}

impl<F: Fn(&str) -> usize + Send + Sync> TokenCounter for F {
    fn count(&self, text: &str) -> usize {
        self(text)
    }
}

/// Token counter that estimates the number of tokens without a tokenizer.
///
/// One token is counted for three ASCII letters or spaces, for two other ASCII characters, and for each non-ASCII character. The
/// counts of letters and of other ASCII characters are each rounded up.
///
/// English prose has about four characters per token. JSON has more tokens, because quotes, braces and digits are short tokens.
/// The estimate can be too low: lists of short numbers may have twice as many tokens, and mostly random text (IDs, hashes,
/// base64) and emoji also have more. If an exact count matters, use the tokenizer of the model.
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
