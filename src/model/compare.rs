//! Equality and order of JSON values in conditions. Numbers compare by value.

use serde_json::{Number, Value};
use std::cmp::Ordering;

/// Returns `true` if two JSON values are deeply equal. `1` equals `1.0`, and integers beyond 2^53 compare exactly.
///
/// The depth of the shallower value limits the recursion. One of the values comes from a validated definition.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b) == Some(Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        (Value::Null | Value::Bool(_) | Value::String(_), _)
        | (Value::Number(_) | Value::Array(_) | Value::Object(_), _) => a == b,
    }
}

/// Compares two JSON numbers by value, or two JSON strings by code point, and returns `None` for other values.
pub(super) fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b),
        // The bytes of UTF-8 have the order of the code points.
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_), _)
        | (Value::Number(_) | Value::String(_), _) => None,
    }
}

fn order_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (Some(a), None) => order_with_float(a, b.as_f64()?),
        (None, Some(b)) => order_with_float(b, a.as_f64()?).map(Ordering::reverse),
        (None, None) => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}

/// Compares an integer with a float without rounding the integer.
fn order_with_float(integer: i128, float: f64) -> Option<Ordering> {
    if !float.is_finite() {
        return 0.0.partial_cmp(&float);
    }
    // The cast saturates at the limits of i128. All integers have 64 bits, so the comparison stays correct.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "saturates, and the fraction is compared below"
    )]
    let whole = float.trunc() as i128;
    Some(
        integer
            .cmp(&whole)
            .then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_equal_by_value_and_large_integers_exactly() {
        for (a, b, same) in [
            (json!(1), json!(1.0), true),
            (json!(0), json!(-0.0), true),
            (
                json!(9_007_199_254_740_993_i64),
                json!(9_007_199_254_740_992_i64),
                false,
            ),
            (
                json!(9_007_199_254_740_993_i64),
                json!(9_007_199_254_740_992.0),
                false,
            ),
            (json!(u64::MAX), json!(18_446_744_073_709_551_615_u64), true),
            (json!(u64::MAX), json!(18_446_744_073_709_551_616.0), false),
            (json!(1), json!("1"), false),
            (json!([1, {"a": 2.0}]), json!([1.0, {"a": 2}]), true),
            (json!({"a": 1}), json!({"a": 1, "b": 1}), false),
        ] {
            assert_eq!(equal(&a, &b), same, "{a} = {b}");
            assert_eq!(equal(&b, &a), same, "{b} = {a}");
        }
    }

    #[test]
    fn order_holds_between_integers_and_floats_and_between_strings() {
        for (a, b, expected) in [
            (json!(1), json!(1.5), Some(Ordering::Less)),
            (json!(-1), json!(-1.5), Some(Ordering::Greater)),
            (json!(2), json!(1.5), Some(Ordering::Greater)),
            (json!(1), json!(1e300), Some(Ordering::Less)),
            (json!(i64::MIN), json!(u64::MAX), Some(Ordering::Less)),
            (json!("a"), json!("ä"), Some(Ordering::Less)),
            (json!("Z"), json!("a"), Some(Ordering::Less)),
            (json!("10"), json!("9"), Some(Ordering::Less)),
            // The order is that of code points, not of UTF-16 units.
            (json!("\u{ff61}"), json!("\u{1f600}"), Some(Ordering::Less)),
            (json!("a"), json!(1), None),
            (json!(true), json!(false), None),
        ] {
            assert_eq!(order(&a, &b), expected, "{a} ? {b}");
        }
    }
}
