use crate::machine::Answer;
use crate::model::{Breadcrumb, NewBreadcrumb};
use serde_json::Value;
pub(crate) fn request(_: &str, _: Value, _: &str, _: Option<&str>) -> NewBreadcrumb {
    NewBreadcrumb::new("x")
}
pub(crate) fn answer_of(_: &Breadcrumb, _: &str, _: &str) -> Option<Answer> {
    None
}
