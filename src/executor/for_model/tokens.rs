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

/// An estimate that needs no tokenizer: one token for three ASCII bytes, begun ones included, and one for each other
/// character.
///
/// The rule of thumb for English prose is four characters to a token. JSON takes more: quotes, braces and digits make
/// short tokens, and three characters to a token is on the safe side of what tokenizers of 100,000 words and more give.
/// What is mostly random (ids, hashes, base64) or emoji takes more than is estimated here; where that matters, or a limit
/// has to be used to its end, count with the tokenizer of the model.
///
/// ```
/// use universal_executor::executor::{EstimatedTokens, TokenCounter};
///
/// assert_eq!(EstimatedTokens.count(r#"{"n":1}"#), 3);
/// assert_eq!(EstimatedTokens.count("\u{4f60}\u{597d}"), 2);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EstimatedTokens;

impl TokenCounter for EstimatedTokens {
    fn count(&self, text: &str) -> usize {
        let ascii = text.bytes().filter(u8::is_ascii).count();
        let others = text.chars().filter(|c| !c.is_ascii()).count();
        ascii.div_ceil(3) + others
    }
}
