//! Loading of images and files from a store, for a model request.

use super::request::LoadedMedia;
use super::{ChatRequest, Media, Part};
use crate::agent::ModelError;
use crate::error::{Retry, excerpt};
use crate::executor::{ContextError, ExecutionContext};
use crate::model::Json;
use crate::store::{BreadcrumbStore, StoreError};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

/// The store from which an agent reads images and files.
#[derive(Clone)]
pub(in crate::agent) struct MediaSource {
    store: Arc<dyn BreadcrumbStore>,
    context: ExecutionContext,
}

impl MediaSource {
    pub(in crate::agent) fn new(
        store: Arc<dyn BreadcrumbStore>,
        context: &ExecutionContext,
    ) -> Self {
        let context = context.clone();
        Self { store, context }
    }

    /// Reads the images and files of a model request from the agent's store.
    pub(in crate::agent) async fn load(&self, request: &mut ChatRequest) -> Result<(), ModelError> {
        let context = Some(&self.context);
        request.load(&*self.store, context).await
    }
}

impl fmt::Debug for MediaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaSource").finish_non_exhaustive()
    }
}

impl ChatRequest {
    /// Maximum total size of the images and files of one model request, in bytes. The limit is 16 MiB.
    ///
    /// The sizes in the references count, and a content that several references name counts each
    /// time.
    pub const MAX_MEDIA_BYTES: u64 = 16 << 20;

    /// Reads the images and files of the messages from a store, for the next model request.
    ///
    /// Agents call this themselves, with their own stores. The hints of a breadcrumb shape its content first, so an excluded field
    /// cannot be sent.
    ///
    /// Call it before each request that you send to a [`ChatModel`](super::ChatModel) yourself,
    /// because the bytes are not part of a saved request. A content that several references name is
    /// read once.
    ///
    /// # Errors
    /// - [`ModelError::Media`] if a reference cannot be read or does not match its content.
    /// - [`ModelError::TooLarge`] if the content is larger than [`Media::MAX_BYTES`] or [`Self::MAX_MEDIA_BYTES`].
    /// - [`ModelError::Unavailable`] if the store fails.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::{ChatMessage, ChatRequest, Media, Part};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let photo = NewBreadcrumb::new("photo.v1").context(json!({"base64": "QUJD"}));
    /// let photo = store.create(photo).await?;
    ///
    /// let image = Part::Image(Media::new(photo.id, "base64", "image/png", 3));
    /// let mut request = ChatRequest::new(vec![ChatMessage::user("Which bird?").with(image)]);
    /// request.load_media(&store).await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn load_media(&mut self, store: &dyn BreadcrumbStore) -> Result<(), ModelError> {
        self.load(store, None).await
    }

    /// Returns the references to images and files in all messages of a model request, each with `true` for an image and `false` for a file.
    pub(in crate::agent) fn media(&self) -> impl Iterator<Item = (&Media, bool)> {
        let parts = self.messages.iter().flat_map(|message| &message.parts);
        parts.filter_map(|part| match part {
            Part::Image(media) => Some((media, true)),
            Part::File(media) => Some((media, false)),
            Part::Text(_)
            | Part::Data(_)
            | Part::ToolCall(_)
            | Part::ToolResult(_)
            | Part::Reasoning(_)
            | Part::Opaque(_) => None,
        })
    }

    /// Returns the base64 content of an image or a file of a model request, which `load_media` has read from the store.
    pub(in crate::agent) fn bytes_of(&self, media: &Media) -> Result<&Arc<str>, ModelError> {
        let LoadedMedia(loaded) = &self.loaded;
        let key = (media.breadcrumb, media.path.clone());
        loaded.get(&key).ok_or_else(|| {
            media.media_error("the content is not loaded; call ChatRequest::load_media")
        })
    }

    async fn load(
        &mut self,
        store: &dyn BreadcrumbStore,
        context: Option<&ExecutionContext>,
    ) -> Result<(), ModelError> {
        let mut total = 0_u64;
        for (media, is_image) in self.media() {
            media.check(is_image)?;
            total = total.saturating_add(media.size);
        }
        if total > Self::MAX_MEDIA_BYTES {
            return Err(ModelError::TooLarge {
                what: "the size of all images and files in bytes",
                limit: usize::try_from(Self::MAX_MEDIA_BYTES).unwrap_or(usize::MAX),
            });
        }
        let mut loaded = BTreeMap::new();
        for (media, _) in self.media() {
            let key = (media.breadcrumb, media.path.clone());
            let bytes = match loaded.entry(key) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let shown = visible_context(media, store, context).await?;
                    entry.insert(media.bytes_in(&shown)?)
                }
            };
            // The total counts the sizes in the references, so each reference must state the correct size.
            media.check_size(bytes)?;
        }
        self.loaded = LoadedMedia(loaded);
        Ok(())
    }
}

/// Returns the context of the breadcrumb that contains an image or a file, after the breadcrumb's `llm_hints` were applied.
async fn visible_context(
    media: &Media,
    store: &dyn BreadcrumbStore,
    context: Option<&ExecutionContext>,
) -> Result<Json, ModelError> {
    let found = match store.get(media.breadcrumb).await {
        Ok(found) => found,
        Err(StoreError::NotFound { .. }) => {
            return Err(media.media_error("the breadcrumb does not exist"));
        }
        Err(error) => return Err(ModelError::Unavailable(error.into())),
    };
    let shown = match context {
        Some(context) => context.shown(&found, store).await,
        None => {
            let context = ExecutionContext::for_trigger(Arc::clone(&found));
            context.shown(&found, store).await
        }
    };
    shown.map_err(|error| match error {
        ContextError::Withheld { .. } => media.media_error("the breadcrumb's hints are invalid"),
        error if error.retry() == Retry::Never => {
            media.media_error("cannot read the breadcrumb's hints")
        }
        error => ModelError::Unavailable(error.into()),
    })
}

impl Media {
    /// Maximum size of one image or file, in bytes. The limit is 768 KiB. In base64, this is the maximum size of a breadcrumb's [`Json`].
    pub const MAX_BYTES: u64 = 768 << 10;

    /// Checks a reference to an image or a file before its content is read.
    fn check(&self, is_image: bool) -> Result<(), ModelError> {
        if self.size > Self::MAX_BYTES {
            return Err(ModelError::TooLarge {
                what: "the size of an image or a file in bytes",
                limit: usize::try_from(Self::MAX_BYTES).unwrap_or(usize::MAX),
            });
        }
        let is_plain = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
            (1..=64).contains(&part.len()) && part.bytes().all(is_plain)
        };
        let parts = self.media_type.split_once('/');
        let is_type = parts.is_some_and(|(kind, name)| is_plain(kind) && is_plain(name));
        if !is_type {
            return Err(self.media_error("the media type is not of the form type/subtype"));
        }
        if is_image && !self.media_type.starts_with("image/") {
            return Err(self.media_error("an image must have a media type image/.."));
        }
        Ok(())
    }

    /// Returns the bytes of an image or a file from its breadcrumb's context, in base64.
    fn bytes_in(&self, context: &Json) -> Result<Arc<str>, ModelError> {
        match context.text(&self.path) {
            Some(text) => Ok(text.into()),
            None => Err(self.media_error("the context shows no string at this path")),
        }
    }

    /// Checks that the content of an image or a file is base64, and that its decoded size equals the size in the reference.
    fn check_size(&self, text: &str) -> Result<(), ModelError> {
        match decoded_size(text) {
            None => Err(self.media_error("the string is not standard base64 with padding")),
            Some(size) if size != self.size => {
                let reason = format!(
                    "the content has {size} bytes, but the reference states {}",
                    self.size
                );
                Err(self.media_error(reason))
            }
            Some(_) => Ok(()),
        }
    }

    fn media_error(&self, reason: impl Into<String>) -> ModelError {
        ModelError::Media {
            breadcrumb: self.breadcrumb,
            path: excerpt(&self.path, 200).into_owned(),
            media_type: excerpt(&self.media_type, 100).into_owned(),
            reason: reason.into(),
        }
    }

    /// Returns a description of an image or a file for an agent's external program, which does not receive the bytes.
    #[cfg(feature = "cli")]
    pub(in crate::agent) fn described(&self) -> String {
        let name = self.name.as_deref().unwrap_or("without a name");
        let (name, kind) = (excerpt(name, 200), excerpt(&self.media_type, 100));
        format!(
            "[attachment {name:?} of type {kind:?}, {} bytes, not shown]",
            self.size
        )
    }
}

/// Returns the decoded size of a base64 string in bytes, or `None` if the string is invalid.
fn decoded_size(text: &str) -> Option<u64> {
    let data = text.trim_end_matches('=');
    let padding = text.len() - data.len();
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    if !text.len().is_multiple_of(4) || padding > 2 || !data.bytes().all(is_base64) {
        return None;
    }
    u64::try_from(text.len() / 4 * 3 - padding).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BreadcrumbId;

    #[test]
    fn the_size_of_base64_is_known_without_decoding_it() {
        let sizes = ["", "QQ==", "QUI=", "QUJD", "QUJDRA=="].map(decoded_size);

        assert_eq!(sizes, [Some(0), Some(1), Some(2), Some(3), Some(4)]);
        for text in ["Q", "Q===", "QQ=a", "QQ\n=", "Q-_=", "===="] {
            assert_eq!(decoded_size(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_reference_with_another_type_or_size_is_refused_before_anything_is_read() {
        let media = |kind: &str, size| Media::new(BreadcrumbId::NIL, "photo", kind, size);

        assert!(media("image/png", 3).check(true).is_ok());
        assert!(media("application/pdf", 3).check(false).is_ok());
        for kind in [
            "png",
            "image/",
            "image/png;base64,x",
            "image/png\r\n",
            "text/plain",
        ] {
            let error = media(kind, 3).check(true).unwrap_err();
            assert!(matches!(error, ModelError::Media { .. }), "{error:?}");
        }
        let error = media("image/png", Media::MAX_BYTES + 1).check(true);
        assert!(
            matches!(error, Err(ModelError::TooLarge { .. })),
            "{error:?}"
        );
    }
}
