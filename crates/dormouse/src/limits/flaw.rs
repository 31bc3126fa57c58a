//! Finds what a JSON document must not contain, in one pass over its text, so that no store, step or page has to handle
//! it.

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Objects and arrays are inside each other more often than allowed.
    TooDeep,
    /// U+0000 in a text or a name, which JSON can only write as an escape.
    Nul,
    /// Half of a surrogate pair, which is not a character.
    LoneSurrogate,
    /// A number beyond what a 64-bit float holds, such as `1e400`.
    HugeNumber,
}

/// A number of fewer characters, without an exponent, is never too large.
const DIGITS_MAX: usize = 300;

/// The first flaw of a text that is known to be JSON.
pub(super) fn flaw(json: &str, depth_max: usize) -> Option<Flaw> {
    let bytes = json.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => match text_end(bytes, at + 1) {
                Ok(end) => at = end,
                Err(flaw) => return Some(flaw),
            },
            b'[' | b'{' => {
                depth += 1;
                if depth > depth_max {
                    return Some(Flaw::TooDeep);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' => {
                let end = number_end(bytes, at);
                if is_huge(&json[at..end]) {
                    return Some(Flaw::HugeNumber);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where a text ends that starts here: at its closing quote.
fn text_end(bytes: &[u8], mut at: usize) -> Result<usize, Flaw> {
    loop {
        match bytes.get(at) {
            None | Some(b'"') => return Ok(at),
            Some(b'\\') => match unit(bytes, at) {
                Some(0) => return Err(Flaw::Nul),
                Some(0xd800..=0xdbff) => match unit(bytes, at + 6) {
                    Some(0xdc00..=0xdfff) => at += 12,
                    _ => return Err(Flaw::LoneSurrogate),
                },
                Some(0xdc00..=0xdfff) => return Err(Flaw::LoneSurrogate),
                Some(_) => at += 6,
                None => at += 2,
            },
            Some(_) => at += 1,
        }
    }
}

/// The code unit that is written here as `\uXXXX`.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(br"\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn number_end(bytes: &[u8], at: usize) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    at + bytes[at..].iter().take_while(|byte| is_part(byte)).count()
}

fn is_huge(number: &str) -> bool {
    let may_be = number.len() > DIGITS_MAX || number.contains(['e', 'E']);
    may_be && number.parse::<f64>().is_ok_and(f64::is_infinite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_escape_that_is_not_escaped_is_nul() {
        for nul in [r#""\u0000""#, r#"{"a\u0000b":1}"#, r#""\\\u0000""#, r#"["\\u0000","\u0000"]"#] {
            assert_eq!(flaw(nul, 64), Some(Flaw::Nul), "{nul}");
        }
        for text in [r#""\\u0000""#, r#""\\\\u0000""#, r#""\\\\\\u0000 \u0001""#, r#""u0000""#, "null"] {
            assert_eq!(flaw(text, 64), None, "{text}");
        }
    }

    #[test]
    fn half_a_pair_is_no_character() {
        for half in [
            r#""\ud800""#,
            r#""\uDFFF""#,
            r#""\ud800x""#,
            r#"{"\udc00":1}"#,
            r#""\ud800\ud800""#,
            r#""\ud83d\\udca3""#,
        ] {
            assert_eq!(flaw(half, 64), Some(Flaw::LoneSurrogate), "{half}");
        }
        for text in [r#""\ud83d\udca3""#, r#""\uD83D\uDCA3\ud83d\udca3""#, r#""\\ud800""#, "\"💣\""] {
            assert_eq!(flaw(text, 64), None, "{text}");
        }
    }

    #[test]
    fn a_number_that_no_float_holds_is_huge() {
        let long = "9".repeat(400);
        for number in ["1e400", "[-1E+400]", r#"{"a":12.5e999999999}"#, &long] {
            assert_eq!(flaw(number, 64), Some(Flaw::HugeNumber), "{number}");
        }
        for number in ["1e308", "1e-400", "0e400", r#""1e400""#, "123456789012345678901234567890"] {
            assert_eq!(flaw(number, 64), None, "{number}");
        }
    }

    #[test]
    fn brackets_in_texts_are_not_deep() {
        let flat = serde_json::json!({ "text": "[".repeat(1000), "quote": "\"[{" }).to_string();
        assert_eq!(flaw(&flat, 1), None);
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(flaw(&nested(64), 64), None);
        assert_eq!(flaw(&nested(65), 64), Some(Flaw::TooDeep));
        assert_eq!(flaw(&"[],".repeat(1000), 1), None, "beside each other");
    }
}
