use super::fence::FenceKey;
use super::format::Format;
use super::line::push_json;
use super::section::{Facts, Heading, before_notes, note};
use super::{ModelContext, ModelItem};

impl ModelContext {
    /// The whole as a text for a prompt: what a model may see of each source, then what is missing, then the trigger.
    ///
    #[doc = include_str!("example.md")]
    ///
    /// ```
    /// use serde_json::json;
    /// use universal_executor::executor::FenceKey;
    /// use universal_executor::{ContextBudget, ExecutionContext, Format, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "What is this page?"}));
    /// let context = ExecutionContext::for_trigger(message).with("page", json!({"url": "https://github.com"}));
    ///
    /// let shown = context.for_model().await?.fit(&ContextBudget::default(), Format::Xml)?;
    /// let text = shown.render_with(Format::Xml, &FenceKey::new([7; 32]));
    ///
    /// assert!(text.contains(
    ///     r#"
    /// <data-53f83e1215e85c7e>
    /// {"url":"https://github.com"}
    /// </data-53f83e1215e85c7e>
    /// </source>
    /// "#
    /// ));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    ///
    /// # What is data and what is not
    /// Everything that came from a breadcrumb is JSON inside a fence, and no content can close its fence: each line
    /// begins with JSON, never with a backtick, and in XML `<`, `>` and `&` are written as `\u003c` and so on. The
    /// digits of a fence are a keyed hash over the name of the section and its content (see [`FenceKey`]), so nobody who
    /// writes content can foretell them. The name of a schema is shown if all items share it and it is plain (up to 128 of
    /// `A-Za-z0-9._:-`); keys, which come from definitions, are quoted unless they are plain. JSON that nests deeper than 64
    /// levels is shown as the string `(nests too deeply to be shown)`.
    ///
    /// That helps a model to tell data from instructions and does not force it to: what it may do has to be limited
    /// elsewhere.
    ///
    /// # Prompt caches
    /// The same texts give the same bytes from call to call: sources come in the order of the subscriptions, and their age
    /// is written as the time of the newest item, never as a distance from now. What did not change keeps its bytes, so a
    /// prompt cache hits up to the first source that did: subscribe first to what changes least. Fences are the same
    /// within a process; use [`render_with`](Self::render_with) to have them the same in several.
    #[must_use]
    pub fn render(&self, format: Format) -> String {
        self.render_with(format, FenceKey::of_process())
    }

    /// The same with fences of another key.
    #[must_use]
    pub fn render_with(&self, format: Format, fences: &FenceKey) -> String {
        let preamble = match self.has_no_words {
            true => format.preamble_before_words(),
            false => format.preamble(),
        };
        let mut text = preamble.to_owned();
        for source in &self.sources {
            if source.is_shown(source.items.len()) {
                let (facts, content) = (Facts::of(&source.items), source.content(format));
                Heading::Source(&source.key).push(format, fences, &facts, &content, &mut text);
            }
        }
        if !self.missing.is_empty() {
            text.push_str(before_notes(format));
        }
        for missing in &self.missing {
            text.push_str(&note(format, &missing.key, &missing.reason));
        }
        if !self.shows_trigger() {
            return text;
        }
        let (facts, content) = (
            Facts::of(std::slice::from_ref(&self.trigger)),
            self.trigger.content(format),
        );
        Heading::Trigger.push(format, fences, &facts, &content, &mut text);
        text
    }
}

impl ModelItem {
    /// What stands between the fences of an item on its own, and on a line of a list.
    pub(super) fn content(&self, format: Format) -> String {
        let mut content = String::new();
        push_json(&self.context, format.is_markup(), &mut content);
        content
    }
}
