//! Labels of breadcrumbs: the permitted readers, and the sensitivity of the content.

use serde::{Deserialize, Deserializer, Serialize, de};

/// Label of the permitted readers of a breadcrumb. This crate stores the label and does not enforce it.
///
/// Set it with [`NewBreadcrumb::visibility`](super::NewBreadcrumb::visibility). To enforce it,
/// check the label in the code that shows breadcrumbs to people.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// The breadcrumb is for all readers.
    Public,
    /// The breadcrumb is for the agents of the breadcrumb's owner (`owner_id`). The default.
    #[default]
    Team,
    /// The breadcrumb is for its author only.
    Private,
}

/// Sensitivity label of a breadcrumb's content. This crate stores the label and does not enforce it.
///
/// Set it with [`NewBreadcrumb::sensitivity`](super::NewBreadcrumb::sensitivity). To keep fields
/// from a model, use [hints](crate::hints) instead.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sensitivity {
    /// Content without special protection. The default.
    #[default]
    Low,
    /// Content with personal data.
    Pii,
    /// Content with secrets.
    Secret,
}

impl<'de> Deserialize<'de> for Visibility {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        one_of(
            deserializer,
            &[
                ("public", Self::Public),
                ("team", Self::Team),
                ("private", Self::Private),
            ],
        )
    }
}

impl<'de> Deserialize<'de> for Sensitivity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        one_of(
            deserializer,
            &[
                ("low", Self::Low),
                ("pii", Self::Pii),
                ("secret", Self::Secret),
            ],
        )
    }
}

/// Deserializes a breadcrumb label from its name in any case. `null` is the default value.
fn one_of<'de, D, T>(deserializer: D, names: &[(&str, T)]) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Copy + Default,
{
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(T::default());
    };
    let known = names
        .iter()
        .find(|(name, _)| text.eq_ignore_ascii_case(name));
    known.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        de::Error::custom(format_args!(
            "unknown value {text:?}; expected one of {}",
            known.join(", ")
        ))
    })
}
