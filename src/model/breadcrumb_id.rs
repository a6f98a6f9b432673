use crate::error::excerpt;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// A breadcrumb ID: a UUID of any version.
///
/// Stores create UUIDs of version 7, so the IDs from one process sort by creation time. The text form has lower-case digits
/// and hyphens. The feature `uuid` adds conversions from and to the type of the crate `uuid`.
///
/// ```
/// use universal_executor::BreadcrumbId;
///
/// let id: BreadcrumbId = "01890A5D-ac96-774b-bcce-b302099a8057".parse()?;
///
/// assert_eq!(id.to_string(), "01890a5d-ac96-774b-bcce-b302099a8057");
/// assert_eq!(BreadcrumbId::from_bytes(*id.as_bytes()), id);
/// # Ok::<(), universal_executor::model::InvalidId>(())
/// ```
#[derive(Clone, Copy, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct BreadcrumbId(Uuid);

impl BreadcrumbId {
    /// The breadcrumb ID of 16 zero bytes, which ping events carry.
    pub const NIL: Self = Self(Uuid::nil());

    /// Creates a new breadcrumb ID: a UUID of version 7, which no other breadcrumb has.
    ///
    /// Stores call this method for each new breadcrumb. Call it to name a breadcrumb before its
    /// commit, for example in your own store or in a test.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::BreadcrumbId;
    ///
    /// let (older, newer) = (BreadcrumbId::unique(), BreadcrumbId::unique());
    /// assert!(older < newer);
    /// ```
    #[must_use]
    pub fn unique() -> Self {
        Self(Uuid::now_v7())
    }

    /// Creates a breadcrumb ID from its 16 bytes, in the order in which the ID's text form shows them.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the 16 bytes of the breadcrumb ID, in the order in which the ID's text form shows them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    pub(crate) const fn to_uuid(self) -> Uuid {
        self.0
    }
}

#[cfg(feature = "uuid")]
impl BreadcrumbId {
    /// Returns the breadcrumb ID as a UUID.
    #[must_use]
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

#[cfg(feature = "uuid")]
impl From<Uuid> for BreadcrumbId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

#[cfg(feature = "uuid")]
impl From<BreadcrumbId> for Uuid {
    fn from(id: BreadcrumbId) -> Self {
        id.0
    }
}

/// Error of a string that is not a UUID, returned when a [`BreadcrumbId`] is parsed.
///
/// A retry cannot succeed. The message has the first 64 bytes of the string, and the cause is the
/// error of the crate `uuid`.
///
/// # Examples
/// ```
/// use universal_executor::BreadcrumbId;
///
/// let error = "order-7".parse::<BreadcrumbId>().unwrap_err();
/// assert!(error.to_string().starts_with("cannot parse breadcrumb ID \"order-7\""));
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "cannot parse breadcrumb ID {text:?}: expected a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057"
)]
pub struct InvalidId {
    /// The first 64 bytes of the string that is not a UUID.
    text: String,
    source: uuid::Error,
}

impl FromStr for BreadcrumbId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        text.parse().map(Self).map_err(|source| InvalidId {
            text: excerpt(text, 64).into_owned(),
            source,
        })
    }
}

impl fmt::Display for BreadcrumbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for BreadcrumbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn the_bytes_of_an_id_have_the_order_of_its_text() {
        let bytes: [u8; 16] = std::array::from_fn(|n| n as u8);

        let id = BreadcrumbId::from_bytes(bytes);

        assert_eq!(id.to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!(id.to_string().parse::<BreadcrumbId>(), Ok(id));
        assert_eq!(*id.as_bytes(), bytes);
        assert_eq!(BreadcrumbId::from_bytes([0; 16]), BreadcrumbId::NIL);
    }

    #[test]
    fn new_ids_differ_and_sort_by_creation_time() {
        let ids: Vec<BreadcrumbId> = (0..1_000).map(|_| BreadcrumbId::unique()).collect();

        assert!(ids.is_sorted_by(|older, newer| older < newer));
    }

    #[test]
    fn the_error_of_a_string_that_is_not_an_id_shows_at_most_64_bytes_of_it() {
        let short = "order-7".parse::<BreadcrumbId>().unwrap_err();
        let long = "x".repeat(1_000).parse::<BreadcrumbId>().unwrap_err();

        assert_eq!(
            short.to_string(),
            "cannot parse breadcrumb ID \"order-7\": expected a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057"
        );
        assert!(short.source().is_some());
        let shown = format!("{:?}", format!("{}..", "x".repeat(64)));
        assert!(long.to_string().contains(&shown), "{long}");
    }

    #[cfg(feature = "uuid")]
    #[test]
    fn an_id_converts_from_and_to_the_type_of_the_crate_uuid() {
        let uuid = Uuid::now_v7();

        let id = BreadcrumbId::from(uuid);

        assert_eq!((id.as_uuid(), Uuid::from(id)), (uuid, uuid));
        assert_eq!(id.as_bytes(), uuid.as_bytes());
    }
}
