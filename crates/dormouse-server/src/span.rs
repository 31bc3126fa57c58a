//! Time spans as people write them: `30s`, `5m`, `1h30m`, `7d`.

use std::time::Duration;

/// The accepted format, for the OpenAPI document.
pub(crate) const SPAN_PATTERN: &str = r"^([0-9]{1,9}(ms|s|m|h|d)){1,5}$";
/// Bounded, so that no sum of spans overflows.
const DIGITS_MAX: usize = 9;
const PARTS_MAX: usize = 5;

/// Parses a span. The error describes the format.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let refuse = || {
        format!("{text:?} is not a span of time: write a number and ms, s, m, h or d, such as 30s or 1h30m")
    };
    let (mut total, mut parts) = (Duration::ZERO, 0);
    let mut rest = text.trim();
    while !rest.is_empty() || parts == 0 {
        parts += 1;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(refuse)?;
        if digits > DIGITS_MAX || parts > PARTS_MAX {
            return Err(refuse());
        }
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: u64 = number.parse().map_err(|_| refuse())?;
        let ms: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(refuse()),
        };
        total += Duration::from_millis(number * ms);
        rest = after;
    }
    Ok(total)
}

/// Formats a span so that it is read as the same one, to the millisecond.
pub(crate) fn exact(span: Duration) -> String {
    let ms = span.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let (unit_ms, unit) =
        units.into_iter().find(|(unit_ms, _)| ms > 0 && ms.is_multiple_of(*unit_ms)).unwrap_or((1, "ms"));
    format!("{}{unit}", ms / unit_ms)
}

/// Formats a span in its two largest units.
pub(crate) fn show(span: Duration) -> String {
    let s = span.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_span_is_written_as_it_is_read() {
        for text in ["1s", "90s", "1m", "250ms", "1500ms", "25h", "7d", "0ms"] {
            assert_eq!(exact(parse(text).expect("a span")), text);
        }
    }

    #[test]
    fn a_span_is_read_as_it_is_written() {
        for (text, ms) in
            [("30s", 30_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("0s", 0), ("250ms", 250)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_refused_with_an_example() {
        for text in ["", "30", "s", "-1s", "1 year", "9999999999s", "1s2", "1.5h", "1s1s1s1s1s1s"] {
            assert!(parse(text).is_err_and(|error| error.contains("such as 30s")), "{text}");
        }
    }
}
