//! JSON from untrusted writers, with a bound on the number of its values.
//!
//! A bound in bytes is not enough: `{"":0},` is an object of some hundred bytes in memory, so that a few MB of text would take
//! hundreds.

use serde::de::DeserializeOwned;

/// Most values in a text, by the characters that stand before each. So a text takes some 110 MB at most beside its strings
/// (measured: `[[0]],` again and again, with 3 in 6 bytes, takes 640 bytes each; `{"":0},`, with 3 in 7, takes 430).
pub const VALUES_MAX: usize = 1 << 19;

/// Reason for which a text is not read.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The text has more values than [`VALUES_MAX`].
    #[error("the JSON has more than {VALUES_MAX} values")]
    TooManyValues,
    /// The text is not JSON, or not of the expected type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Reads a text whose length the caller has bounded.
///
/// # Errors
/// [`JsonError`]. The values are counted before the first of them is made.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    if has_more_values_than(VALUES_MAX, text) {
        return Err(JsonError::TooManyValues);
    }
    Ok(serde_json::from_slice(text)?)
}

/// Returns true if a text may have more than `most` values. Keys count as values. Each value but the first has a bracket,
/// comma or colon before it that is in no string. Up to the first error of a text the parser takes the same for strings.
fn has_more_values_than(most: usize, text: &[u8]) -> bool {
    let mut values = 1;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'[' | b'{' | b',' | b':' => values += 1,
            _ => {}
        }
        if values > most {
            return true;
        }
    }
    false
}

/// Skips the rest of a string, and the quotation mark that ends it.
fn skip_string<'a>(bytes: &mut impl Iterator<Item = &'a u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            // The next character is part of the string, whatever it is.
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn values_are_counted_by_what_stands_before_them() {
        for (text, values) in [
            ("0", 1),
            ("[1,2]", 3),
            (r#"{"a":{"b":0}}"#, 5),
            (r#"["a,b:[{", "\",,,,", "\\",1]"#, 5),
        ] {
            assert!(
                !has_more_values_than(values, text.as_bytes()),
                "{text}: too many"
            );
            assert!(
                has_more_values_than(values - 1, text.as_bytes()),
                "{text}: too few"
            );
        }
    }

    #[test]
    fn many_values_are_refused_and_a_long_string_is_not() {
        let objects = vec![r#"{"":0}"#; VALUES_MAX / 3 + 1].join(",");
        let refused = read::<Value>(format!("[{objects}]").as_bytes());
        assert!(matches!(refused, Err(JsonError::TooManyValues)));
        let rules = json!("allow tcp from any to any 80,443\n".repeat(1 << 20));
        let text = rules.to_string();
        assert_eq!(read::<Value>(text.as_bytes()).expect("one value"), rules);
    }

    // promise: 7.43
    #[test]
    fn numbers_are_read_to_their_last_digit() {
        // Without the parser's feature `float_roundtrip` several of them are read as a neighbour.
        let seeds = (1..1000_u64).map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let numbers = seeds
            .map(f64::from_bits)
            .filter(|number| number.is_finite());
        for number in numbers {
            let text = serde_json::to_vec(&number).expect("a number");
            let read: f64 = read(&text).expect("a number");
            assert_eq!(read.to_bits(), number.to_bits(), "{number:e}");
        }
    }
}
