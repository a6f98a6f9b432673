//! Reader of subscriptions from the JSON forms of a definition.

use super::conditions::{CONDITION_FIELDS, read_condition};
use super::validate::ConditionCount;
use super::{
    DefinitionError, DefinitionOptions, DefinitionProblem, SubscriptionWarning, WarningDetail,
};
use crate::model::condition::{Condition, value_excerpt};
use crate::model::event::EventKind;
use crate::model::fields::{KnownFields, is_comment};
use crate::model::nearest::nearest;
use crate::model::selector::Selector;
use crate::model::subscription::{Fetch, Method, Order, Role, Subscription};
use serde_json::{Map, Value};

/// Names of the fields of a subscription.
const FIELDS: [&str; 16] = [
    "schema_name",
    "any_tags",
    "all_tags",
    "tag",
    "context_match",
    "role",
    "key",
    "fetch",
    "limit",
    "nn",
    "required",
    "scope",
    "priority",
    ON,
    SELECTOR,
    "comment",
];
/// Field names that are often used by mistake in subscriptions, each with the fields that the author probably means.
const ALIASES: [(&str, &[&str]); 9] = [
    ("tags", &["any_tags", "all_tags"]),
    ("schema", &["schema_name"]),
    ("name", &["key", "schema_name"]),
    ("type", &["role"]),
    ("match", &["context_match"]),
    ("conditions", &["context_match"]),
    ("where", &["context_match"]),
    ("event", &[ON]),
    ("events", &[ON]),
];
const ON: &str = "on";
const SELECTOR: &str = "selector";
const FETCH_FIELDS: [&str; 5] = ["method", "limit", "nn", "order", "min_score"];

/// Reads the subscriptions of a definition. Accepts a list, an object with the field `selectors` or `subscriptions`, or a definition
/// breadcrumb.
pub(super) fn subscriptions(
    definition: &Value,
    options: &DefinitionOptions,
) -> Result<(Vec<Subscription>, Vec<SubscriptionWarning>), DefinitionError> {
    let mut value = definition;
    let mut field = String::new();
    // Each iteration enters a nested field, so the depth limit of JSON also limits this loop.
    let list = loop {
        match value {
            Value::Array(list) => break list,
            Value::Object(_) => {}
            other => {
                return Err(shape(
                    &field,
                    "a list of subscriptions, or an object that holds one",
                    other,
                ));
            }
        }
        let Some((name, inner)) = super::path::next(value) else {
            let problem = DefinitionProblem::Missing {
                expected: "a list, {\"selectors\": [..]}, {\"subscriptions\": ..} or a breadcrumb with one of these in its context",
            };
            return Err(DefinitionError::of_definition(
                &join(&field, "subscriptions"),
                problem,
            ));
        };
        field = join(&field, name);
        value = inner;
    };
    // The limit is checked before the subscriptions are read and their conditions compiled.
    super::validate::check_count(list.len(), &field, options)?;
    let mut warnings = Vec::new();
    let mut subscriptions = Vec::with_capacity(list.len());
    let mut conditions = ConditionCount::default();
    for (index, item) in list.iter().enumerate() {
        let mut reader = Reader::new(index, item, options)?;
        // The limit is checked before the conditions are compiled, because a regular expression takes milliseconds to compile.
        reader.count_conditions(&mut conditions)?;
        let subscription = reader.subscription()?;
        if options.strict {
            reader.check_unknown_fields()?;
        }
        let details = reader.warnings.into_iter();
        warnings
            .extend(details.map(|detail| SubscriptionWarning::of(index, &subscription, detail)));
        subscriptions.push(subscription);
    }
    Ok((subscriptions, warnings))
}

fn join(outer: &str, inner: &str) -> String {
    if outer.is_empty() {
        inner.to_owned()
    } else {
        format!("{outer}.{inner}")
    }
}

fn shape(field: &str, expected: &'static str, found: &Value) -> DefinitionError {
    DefinitionError::of_definition(
        field,
        DefinitionProblem::Shape {
            expected,
            found: value_excerpt(found),
        },
    )
}

/// Reader of one subscription from the JSON of a definition.
struct Reader<'o> {
    options: &'o DefinitionOptions,
    index: usize,
    fields: Map<String, Value>,
    key: Option<String>,
    warnings: Vec<WarningDetail>,
}

impl<'o> Reader<'o> {
    fn new(
        index: usize,
        item: &Value,
        options: &'o DefinitionOptions,
    ) -> Result<Self, DefinitionError> {
        let mut reader = Self {
            options,
            index,
            fields: Map::new(),
            key: None,
            warnings: Vec::new(),
        };
        let Some(object) = item.as_object() else {
            return Err(reader.shape("", "an object", item));
        };
        // A field that is null counts as absent.
        reader.fields = object.clone();
        reader.fields.retain(|_, value| !value.is_null());
        reader.key = reader.key_excerpt();
        while let Some(nested) = reader.fields.remove(SELECTOR) {
            reader.unwrap_selector(nested)?;
        }
        reader.key = reader.key_excerpt();
        Ok(reader)
    }

    fn key_excerpt(&self) -> Option<String> {
        let key = self.fields.get("key").and_then(Value::as_str)?;
        Some(crate::error::excerpt(key, 64).into_owned())
    }

    /// Moves the fields of the object `selector` in a subscription up to the subscription itself.
    fn unwrap_selector(&mut self, nested: Value) -> Result<(), DefinitionError> {
        let Value::Object(nested) = nested else {
            return Err(self.shape(SELECTOR, "an object", &nested));
        };
        for (field, value) in nested.into_iter().filter(|(_, value)| !value.is_null()) {
            if self.fields.contains_key(&field) {
                return Err(self.error(&field, DefinitionProblem::Twice));
            }
            self.fields.insert(field, value);
        }
        Ok(())
    }

    fn count_conditions(&self, count: &mut ConditionCount) -> Result<(), DefinitionError> {
        let list = self.fields.get("context_match").and_then(Value::as_array);
        let operators = list.into_iter().flatten().map(|condition| {
            let operator = condition.get("op").and_then(Value::as_str);
            operator.unwrap_or_default()
        });
        count
            .add(operators, self.options)
            .map_err(|problem| self.error("context_match", problem))
    }

    fn subscription(&mut self) -> Result<Subscription, DefinitionError> {
        let role = self.role()?;
        let mut subscription = Subscription::new(self.selector()?, role);
        subscription.key = self.string("key")?;
        if let (None, Role::Context, Some(keys)) = (&subscription.key, role, &self.options.keys) {
            subscription.key = keys.key_of(subscription.selector.schema_name());
        }
        subscription.fetch = self.fetch(subscription.fetch)?;
        subscription.required = self
            .take("required", "true or false", Value::as_bool)?
            .unwrap_or(false);
        subscription.scope = self.strings("scope")?.unwrap_or_default();
        subscription.priority = self
            .take("priority", "an integer", Value::as_i64)?
            .unwrap_or(0);
        subscription.comment = self.string("comment")?;
        if let Some(kinds) = self.kinds()? {
            subscription.on = kinds;
        }
        subscription.extra = std::mem::take(&mut self.fields);
        for field in subscription.extra.keys() {
            self.warn_if_unknown("", field, &FIELDS, &ALIASES);
        }
        Ok(subscription)
    }

    fn role(&mut self) -> Result<Role, DefinitionError> {
        let Some(name) = self.string("role")? else {
            if let Some(roles) = &self.options.roles {
                let schema = self.fields.get("schema_name").and_then(Value::as_str);
                return Ok(roles.role_of(schema));
            }
            let problem = DefinitionProblem::Missing {
                expected: "\"trigger\" or \"context\"",
            };
            return Err(self.error("role", problem));
        };
        self.enum_value("role", &name, Role::ALL, Role::as_str)
    }

    fn selector(&mut self) -> Result<Selector, DefinitionError> {
        let mut selector = match self.string("schema_name")? {
            Some(schema) => Selector::schema(schema),
            None => Selector::default(),
        };
        if let Some(tags) = self.strings("any_tags")? {
            selector = selector.any_tags(tags);
        }
        if let Some(tag) = self.string("tag")? {
            selector = selector.any_tags([tag]);
        }
        if let Some(tags) = self.strings("all_tags")? {
            selector = selector.all_tags(tags);
        }
        if let Some(conditions) = self.fields.remove("context_match") {
            let Value::Array(conditions) = conditions else {
                return Err(self.shape("context_match", "a list of conditions", &conditions));
            };
            for (at, condition) in conditions.iter().enumerate() {
                selector = selector.condition(self.condition(at, condition)?);
            }
        }
        Ok(selector)
    }

    fn condition(
        &mut self,
        at: usize,
        condition_json: &Value,
    ) -> Result<Condition, DefinitionError> {
        let field_path = format!("context_match[{at}]");
        let fields = condition_json.as_object().into_iter().flat_map(Map::keys);
        for field in fields.filter(|field| !CONDITION_FIELDS.contains(&field.as_str())) {
            self.warn_if_unknown(&field_path, field, &CONDITION_FIELDS, &[]);
        }
        // The first invalid condition ends the load, so no further condition is compiled.
        read_condition(condition_json).map_err(|(field, problem)| match field {
            "" => self.error(&field_path, problem),
            field => self.error(&join(&field_path, field), problem),
        })
    }

    /// Reads the field `fetch` of a subscription: an object, or the name of a method. A `limit` or `nn` of the subscription applies if the
    /// fetch has none.
    fn fetch(&mut self, default: Fetch) -> Result<Fetch, DefinitionError> {
        let subscription_limit = self.count("limit", "limit")?.or(self.count("nn", "nn")?);
        let mut object = match self.fields.remove("fetch") {
            None => {
                return Ok(Fetch {
                    limit: subscription_limit.unwrap_or(self.default_limit(default.method)),
                    ..default
                });
            }
            Some(Value::String(method)) => {
                Map::from_iter([("method".to_owned(), Value::String(method))])
            }
            Some(Value::Object(object)) => object,
            Some(other) => return Err(self.shape("fetch", "a method name or an object", &other)),
        };
        object.retain(|_, value| !value.is_null());
        std::mem::swap(&mut self.fields, &mut object);
        let fetch = self.fetch_fields(default, subscription_limit);
        std::mem::swap(&mut self.fields, &mut object);
        for field in object.keys() {
            self.warn_if_unknown("fetch", field, &FETCH_FIELDS, &[]);
        }
        fetch
    }

    fn fetch_fields(
        &mut self,
        default: Fetch,
        subscription_limit: Option<usize>,
    ) -> Result<Fetch, DefinitionError> {
        let method = match self.take_string("method", "fetch.method")? {
            Some(name) => self.enum_value("fetch.method", &name, Method::ALL, Method::as_str)?,
            None => default.method,
        };
        let (limit, nn) = (
            self.count("limit", "fetch.limit")?,
            self.count("nn", "fetch.nn")?,
        );
        let fetch_limit = if method == Method::Vector {
            nn.or(limit)
        } else {
            limit.or(nn)
        };
        let order = match self.take_string("order", "fetch.order")? {
            Some(name) => self.enum_value("fetch.order", &name, Order::ALL, Order::as_str)?,
            None => Order::NewestFirst,
        };
        let min_score = match self.fields.remove("min_score") {
            Some(score) => match score.as_f64() {
                Some(score) => Some(score),
                None => return Err(self.shape("fetch.min_score", "a number", &score)),
            },
            None => None,
        };
        let limit = fetch_limit
            .or(subscription_limit)
            .unwrap_or(self.default_limit(method));
        Ok(Fetch {
            limit,
            order,
            min_score,
            ..Fetch::new(method)
        })
    }

    fn default_limit(&self, method: Method) -> usize {
        let policy = self.options.keys.as_ref();
        let limit = policy.and_then(super::KeyPolicy::default_limit);
        limit.unwrap_or(method.default_limit())
    }

    fn kinds(&mut self) -> Result<Option<Vec<EventKind>>, DefinitionError> {
        const KINDS: [EventKind; 3] = [EventKind::Created, EventKind::Updated, EventKind::Deleted];
        let Some(names) = self.strings(ON)? else {
            return Ok(None);
        };
        let kinds: Result<Vec<EventKind>, DefinitionError> = names
            .iter()
            .map(|name| self.enum_value(ON, name, KINDS, EventKind::as_str))
            .collect();
        kinds.map(Some)
    }

    fn string(&mut self, field: &'static str) -> Result<Option<String>, DefinitionError> {
        self.take_string(field, field)
    }

    fn take_string(
        &mut self,
        field: &str,
        field_path: &str,
    ) -> Result<Option<String>, DefinitionError> {
        match self.fields.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.shape(field_path, "a string", &other)),
        }
    }

    fn strings(&mut self, field: &'static str) -> Result<Option<Vec<String>>, DefinitionError> {
        let Some(found) = self.fields.remove(field) else {
            return Ok(None);
        };
        let texts = found.as_array().and_then(|list| {
            list.iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<String>>>()
        });
        match texts {
            Some(texts) => Ok(Some(texts)),
            None => Err(self.shape(field, "a list of strings", &found)),
        }
    }

    /// Reads the field `limit` or `nn` of a subscription: the maximum number of breadcrumbs to fetch. A number larger than
    /// `usize` becomes `usize::MAX`, which exceeds every limit.
    fn count(&mut self, field: &str, field_path: &str) -> Result<Option<usize>, DefinitionError> {
        let Some(found) = self.fields.remove(field) else {
            return Ok(None);
        };
        match found.as_u64() {
            Some(count) => Ok(Some(usize::try_from(count).unwrap_or(usize::MAX))),
            None => Err(self.shape(field_path, "a positive integer", &found)),
        }
    }

    fn take<T>(
        &mut self,
        field: &'static str,
        expected: &'static str,
        read: fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, DefinitionError> {
        let Some(found) = self.fields.remove(field) else {
            return Ok(None);
        };
        match read(&found) {
            Some(value) => Ok(Some(value)),
            None => Err(self.shape(field, expected, &found)),
        }
    }

    fn enum_value<T: Copy, const N: usize>(
        &self,
        field_path: &str,
        name: &str,
        all: [T; N],
        as_str: fn(T) -> &'static str,
    ) -> Result<T, DefinitionError> {
        all.into_iter()
            .find(|value| as_str(*value) == name)
            .ok_or_else(|| {
                let value = crate::error::excerpt(name, 64).into_owned();
                self.error(
                    field_path,
                    DefinitionProblem::Unknown {
                        value,
                        nearest: nearest(name, all.map(as_str)),
                        known: all.map(as_str).to_vec(),
                    },
                )
            })
    }

    fn warn_if_unknown(
        &mut self,
        field_path: &str,
        field: &str,
        names: &[&'static str],
        aliases: &[(&str, &[&'static str])],
    ) {
        if is_comment(field) {
            return;
        }
        let nearest = KnownFields { names, aliases }.suggest(field);
        let field = join(field_path, field);
        self.warnings
            .push(WarningDetail::unknown_field(&field, nearest));
    }

    /// Rejects a subscription with unknown fields, which strict mode does not allow.
    ///
    /// # Errors
    /// Returns the first unknown field.
    fn check_unknown_fields(&self) -> Result<(), DefinitionError> {
        for warning in &self.warnings {
            if let Some(nearest) = warning.unknown.clone() {
                let field = crate::error::excerpt(&warning.field, 64);
                return Err(self.error(&field, DefinitionProblem::UnknownField { nearest }));
            }
        }
        Ok(())
    }

    fn shape(&self, field: &str, expected: &'static str, found: &Value) -> DefinitionError {
        self.error(
            field,
            DefinitionProblem::Shape {
                expected,
                found: value_excerpt(found),
            },
        )
    }

    fn error(&self, field: &str, problem: DefinitionProblem) -> DefinitionError {
        DefinitionError {
            subscription: Some(self.index),
            key: self.key.clone(),
            field: field.to_owned(),
            problem: Box::new(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guide::tests::assert_fields;

    #[test]
    fn the_reference_lists_every_field_of_a_subscription() {
        const PAGE: &str = include_str!("../../../docs/reference/subscriptions.md");

        assert_fields(PAGE, "Definition", &super::super::path::STEPS);
        assert_fields(PAGE, "Subscription", &FIELDS);
        assert_fields(PAGE, "Fetch", &FETCH_FIELDS);
        assert_fields(PAGE, "Condition", &CONDITION_FIELDS);
    }
}
