//! Unit vectors of embedded strings, and their similarity.

/// Normalizes a vector to length one. Returns `None` for a zero vector.
pub(super) fn normalize(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let squares = vector.iter().map(|one| f64::from(*one).powi(2));
    let length = squares.sum::<f64>().sqrt();
    if length == 0.0 {
        return None;
    }
    for one in &mut vector {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a part of a vector of length one is at most one"
        )]
        let component = (f64::from(*one) / length) as f32;
        *one = component;
    }
    Some(vector)
}

/// Returns the cosine similarity of two unit vectors, from -1 to 1. All stores use this order of summation, so that their scores are
/// identical.
pub(in crate::store) fn similarity(a: &[f32], b: &[f32]) -> f64 {
    /// Number of independent partial sums in the calculation of a similarity, so that the compiler can use SIMD instructions.
    const LANES: usize = 16;
    let (parts, rest) = a.as_chunks::<LANES>();
    let (others, other_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for (part, other) in parts.iter().zip(others) {
        for ((sum, a), b) in sums.iter_mut().zip(part).zip(other) {
            *sum += a * b;
        }
    }
    let rest = rest.iter().zip(other_rest).map(|(a, b)| a * b);
    let sum = sums.iter().sum::<f32>() + rest.sum::<f32>();
    // Adding 0.0 turns -0.0 into 0.0, because `total_cmp` orders the two.
    f64::from(sum).clamp(-1.0, 1.0) + 0.0
}

/// Encodes a vector as little-endian bytes for a database column.
#[cfg(feature = "sqlite")]
pub(in crate::store) fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|one| one.to_le_bytes()).collect()
}

/// Decodes the bytes of a database column into `vector`. Returns `false` if the lengths differ. `vector` is then partly overwritten.
#[cfg(feature = "sqlite")]
pub(in crate::store) fn from_bytes(bytes: &[u8], vector: &mut [f32]) -> bool {
    let (parts, rest) = bytes.as_chunks::<4>();
    for (one, part) in vector.iter_mut().zip(parts) {
        *one = f32::from_le_bytes(*part);
    }
    parts.len() == vector.len() && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_points_nowhere() {
        assert_eq!(normalize(vec![0.0, -0.0]), None);
        assert_eq!(normalize(vec![0.0, -3.0]), Some(vec![0.0, -1.0]));
    }

    #[test]
    fn a_vector_that_is_huge_or_tiny_still_points_somewhere() {
        for size in [f32::MAX, f32::MIN_POSITIVE, 1e-45] {
            let found = normalize(vec![size, size]).unwrap();

            assert!((similarity(&found, &found) - 1.0).abs() < 1e-6, "{size}");
        }
    }

    fn vectors() -> impl Strategy<Value = (Vec<f32>, Vec<f32>)> {
        (1..100_usize).prop_flat_map(|n| {
            let vector = || prop::collection::vec(-1_000.0..1_000.0_f32, n);
            (vector(), vector())
        })
    }

    proptest! {
        #[test]
        fn the_similarity_is_the_cosine((a, b) in vectors()) {
            let sum = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let cosine = sum(&a, &b) / (sum(&a, &a) * sum(&b, &b)).sqrt();

            if let (Some(a), Some(b)) = (normalize(a), normalize(b)) {
                prop_assert!((similarity(&a, &b) - cosine).abs() < 1e-5);
            }
        }
    }

    #[cfg(feature = "sqlite")]
    proptest! {
        #[test]
        fn a_vector_comes_out_of_its_bytes_as_it_was(vector in prop::collection::vec(any::<f32>(), 0..40)) {
            let bytes = to_bytes(&vector);
            let mut read = vec![0.5; vector.len()];

            prop_assert!(from_bytes(&bytes, &mut read));
            prop_assert_eq!(to_bytes(&read), bytes.clone());
            prop_assert!(!from_bytes(&[bytes, vec![0]].concat(), &mut read));
        }
    }
}
