//! Parts of fuzz test inputs that broke parsers in the past, in this crate or elsewhere. Each part is counted under its name.

/// Object keys in JSON that a library or this crate treats specially.
pub(super) const KEYS: [&str; 6] = [
    "$serde_json::private::RawValue",
    "$serde_json::private::Number",
    "__proto__",
    "creator",
    "<<",
    "$ref",
];

/// Pieces of a JSON string that broke parsers, as JSON text. The private-use characters become invalid bytes in [`super::json::bytes`].
pub(super) const ESCAPES: [(&str, &str); 18] = [
    ("\\u0000", "\\u0000"),
    ("U+0000, raw", "\0"),
    ("lone high surrogate", "\\ud800"),
    ("lone low surrogate", "\\udc00"),
    ("swapped surrogates", "\\ude00\\ud83d"),
    ("surrogate pair", "\\ud83d\\ude00"),
    ("bidirectional override, escaped", "\\u202e"),
    ("bidirectional override, raw", "\u{202E}"),
    ("bidirectional isolate, raw", "\u{2066}"),
    ("line separator, raw", "\u{2028}"),
    ("byte order mark, raw", "\u{FEFF}"),
    ("escaped quote", "\\\"},{\\\""),
    ("escaped backslash", "\\\\"),
    ("unknown escape", "\\x41"),
    ("unfinished escape", "\\u00"),
    ("control character, raw", "\u{1}"),
    ("line feed, raw", "\n"),
    ("four-byte character", "\u{1F600}"),
];

/// Private-use characters that represent invalid UTF-8 bytes, each with a name and the bytes.
pub(super) const INVALID: [(char, &str, &[u8]); 5] = [
    ('\u{E000}', "overlong UTF-8", b"\xC0\x80"),
    ('\u{E001}', "surrogate in UTF-8", b"\xED\xA0\x80"),
    ('\u{E002}', "UTF-8 above U+10FFFF", b"\xF5\x80\x80\x80"),
    ('\u{E003}', "cut UTF-8", b"\xE2\x82"),
    ('\u{E004}', "byte 0xFF", b"\xFF"),
];

/// Numbers as JSON that broke parsers, and some strings that only look like numbers. The empty string is replaced with 400 digits.
pub(super) const NUMBERS: [(&str, &str); 17] = [
    ("1e400", "1e400"),
    ("-1e400", "-1e400"),
    ("1e-400", "1e-400"),
    ("-0", "-0"),
    ("-0.0", "-0.0"),
    ("2^53+1", "9007199254740993"),
    ("i64::MIN-1", "-9223372036854775809"),
    ("i64::MAX+1", "9223372036854775808"),
    ("u64::MAX", "18446744073709551615"),
    ("u64::MAX+1", "18446744073709551616"),
    ("f64::MAX", "1.7976931348623157e308"),
    ("400 digits", ""),
    ("leading zero", "01"),
    ("point without digits", "1."),
    ("NaN", "NaN"),
    ("exponent of 20 digits", "1e18446744073709551616"),
    ("0 with exponent of 20 digits", "0e18446744073709551616"),
];

/// Depths to which fuzz tests nest JSON lists and objects, each with a name.
pub(super) const DEPTHS: [(&str, usize); 7] = [
    ("depth 32", 32),
    ("depth 63", 63),
    ("depth 64", 64),
    ("depth 65", 65),
    ("depth 128", 128),
    ("depth 10,000", 10_000),
    ("depth 100,000", 100_000),
];

/// Sizes in bytes of JSON strings in fuzz test inputs: one below, at and one above the limits of tags, schema names, JSONPaths,
/// names and larger strings.
pub(super) const SIZES: [(&str, usize); 18] = [
    ("63 bytes", 63),
    ("64 bytes", 64),
    ("65 bytes", 65),
    ("255 bytes", 255),
    ("256 bytes", 256),
    ("257 bytes", 257),
    ("511 bytes", 511),
    ("512 bytes", 512),
    ("513 bytes", 513),
    ("64 KiB - 1", (64 << 10) - 1),
    ("64 KiB", 64 << 10),
    ("64 KiB + 1", (64 << 10) + 1),
    ("256 KiB - 1", (256 << 10) - 1),
    ("256 KiB", 256 << 10),
    ("256 KiB + 1", (256 << 10) + 1),
    ("1 MiB - 1", (1 << 20) - 1),
    ("1 MiB", 1 << 20),
    ("1 MiB + 1", (1 << 20) + 1),
];

/// Lengths of JSON lists in fuzz test inputs: one below, at and one above the limits of branches, regular expressions, tags and
/// conditions.
pub(super) const COUNTS: [(&str, usize); 12] = [
    ("63 items", 63),
    ("64 items", 64),
    ("65 items", 65),
    ("99 items", 99),
    ("100 items", 100),
    ("101 items", 101),
    ("255 items", 255),
    ("256 items", 256),
    ("257 items", 257),
    ("999 items", 999),
    ("1,000 items", 1_000),
    ("1,001 items", 1_001),
];

/// Returns the names of all fragments of fuzz test inputs that are known to break parsers.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let keys = KEYS.into_iter();
    let escapes = ESCAPES.into_iter().map(|(name, _)| name);
    let invalid = INVALID.into_iter().map(|(_, name, _)| name);
    let numbers = NUMBERS.into_iter().map(|(name, _)| name);
    let depths = DEPTHS.into_iter().map(|(name, _)| name);
    let sizes = SIZES.into_iter().map(|(name, _)| name);
    let counts = COUNTS.into_iter().map(|(name, _)| name);
    let texts = keys.chain(escapes).chain(invalid).chain(numbers);
    texts.chain(depths).chain(sizes).chain(counts)
}
