use super::fence::FenceKey;
use super::format::Format;
use super::line::push_json;
use super::section::{Facts, Heading, before_notes, note};
use super::{ModelContext, ModelItem};

impl ModelContext {
    /// Returns the context as text for a prompt: the sources, then the missing sources with the reasons, then the trigger.
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
    /// # Fences around data
    /// All data of breadcrumbs is JSON inside a fence, and no data can close its fence. Each line starts with JSON, never with a
    /// backtick, and in XML `<`, `>` and `&` are escaped, for example as `\u003c`. The digits of a fence are a keyed hash of the
    /// section's name and content (see [`FenceKey`]), so a writer of the content cannot predict them.
    ///
    /// A schema name is shown if all items of a source share the schema and the name is plain: 1 to 128 characters of
    /// `A-Za-z0-9._:-`. Keys, which come from definitions, are quoted unless they are plain. JSON that nests deeper than 64 levels is
    /// shown as the string `(nests too deeply to be shown)`.
    ///
    /// Fences help a model to distinguish data from instructions, but cannot force it to. Limit the permissions of the agent as well.
    ///
    /// # Prompt caches
    /// The same context renders to the same bytes in every call. Sources have the order of the subscriptions, and the age of a source
    /// is the time of its newest item, never a duration until now. Sections that did not change keep their bytes, so a prompt cache
    /// hits up to the first changed section. Subscribe first to the sources that change least.
    ///
    /// Fences are the same within one process. Use [`render_with`](Self::render_with) for the same fences in several processes.
    #[must_use]
    pub fn render(&self, format: Format) -> String {
        self.render_with(format, FenceKey::of_process())
    }

    /// Returns the same text as [`render`](Self::render), except that the marks around data depend on the secret key `fences`.
    ///
    /// Use it for the same text in several processes, for example in tests or with a shared prompt
    /// cache.
    #[must_use]
    pub fn render_with(&self, format: Format, fences: &FenceKey) -> String {
        let preamble = match self.user_text_removed {
            true => format.preamble_before_user_text(),
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
    /// Returns the item's context, to which `llm_hints` were applied, as one line of JSON, for the content of a section or for
    /// a line of a list.
    pub(super) fn content(&self, format: Format) -> String {
        let mut content = String::new();
        push_json(&self.context, format.is_markup(), &mut content);
        content
    }
}
