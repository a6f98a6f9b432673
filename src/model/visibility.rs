//! Access classes of breadcrumbs: readers, and how sensitive the content is.

use serde::{Deserialize, Deserializer, Serialize, de};

/// Readers of a breadcrumb.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// Everybody.
    Public,
    /// The owner's agents; the default.
    #[default]
    Team,
    /// Its author.
    Private,
}

/// Sensitivity class of the content of a breadcrumb.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sensitivity {
    /// Nothing special; the default.
    #[default]
    Low,
    /// Personal data.
    Pii,
    /// Secrets.
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

/// Reads an enum by its name in any case. A null is the default.
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
        de::Error::custom(format_args!("{text:?} is none of {}", known.join(", ")))
    })
}
