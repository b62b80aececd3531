//! Times that are text: ISO 8601 and what is close to it.

/// A time that was written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds since 1970, in UTC.
    pub microseconds: u64,
    /// Whether the text gives its offset from UTC. A text without an offset is read as UTC.
    pub has_offset: bool,
}

/// The expected form of a text, for messages.
pub const EXPECTED: &str = "ISO 8601 text such as 2026-10-25T02:00:00.5+01:00";

/// Names that mean UTC.
const UTC: [&str; 4] = ["Z", "UTC", "GMT", "ETC/UTC"];

impl Moment {
    /// Returns the time of a text such as `2023-11-16 18:17:03.9799600`,
    /// `2026-10-25T02:00:00,5+01:00` or `2026-10-25 12:00 UTC`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = Digits { text: text.trim() };
        let days = rest.date()?;
        rest.separator()?;
        let microseconds = rest.time()?;
        let offset = offset(rest.text.trim())?;
        let local = days * 86_400_000_000 + microseconds;
        let utc = local - offset.unwrap_or(0) * 1_000_000;
        Some(Self { microseconds: u64::try_from(utc).ok()?, has_offset: offset.is_some() })
    }
}

/// The rest of a text that is read from its start.
struct Digits<'a> {
    text: &'a str,
}

impl Digits<'_> {
    /// Reads a number with exactly `count` digits.
    fn number(&mut self, count: usize) -> Option<i64> {
        let digits = self.text.get(..count)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        self.text = &self.text[count..];
        digits.parse().ok()
    }

    /// Reads one of several characters, if it is next.
    fn one_of(&mut self, characters: &[char]) -> Option<char> {
        let next = self.text.chars().next().filter(|next| characters.contains(next))?;
        self.text = &self.text[next.len_utf8()..];
        Some(next)
    }

    /// Reads a date, and returns its days since 1970.
    fn date(&mut self) -> Option<i64> {
        let year = self.number(4)?;
        let separator = self.one_of(&['-', '/']);
        let month = self.number(2)?;
        if separator.is_some() && self.one_of(&['-', '/']) != separator {
            return None;
        }
        let day = self.number(2)?;
        let is_date = (1970..3000).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_of_month(year, month)).contains(&day);
        is_date.then(|| days(year, month, day))
    }

    /// Reads the characters between a date and its time.
    fn separator(&mut self) -> Option<()> {
        let before = self.text;
        self.text = self.text.trim_start();
        let is_letter = before.len() == self.text.len() && self.one_of(&['T', 't', '_']).is_some();
        (is_letter || before.len() > self.text.len()).then_some(())
    }

    /// Reads the time of a day, and returns its microseconds.
    fn time(&mut self) -> Option<i64> {
        let hour = self.number(2)?;
        let has_colons = self.one_of(&[':']).is_some();
        let minute = self.number(2)?;
        let has_second = match has_colons {
            true => self.one_of(&[':']).is_some(),
            false => self.text.starts_with(|next: char| next.is_ascii_digit()),
        };
        let second = if has_second { self.number(2)? } else { 0 };
        let fraction = if has_second { self.fraction()? } else { 0 };
        let is_time = hour < 24 && minute < 60 && second < 61;
        is_time.then(|| ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction)
    }

    /// Reads the fraction of a second, and returns its microseconds, rounded.
    fn fraction(&mut self) -> Option<i64> {
        if self.one_of(&['.', ',']).is_none() {
            return Some(0);
        }
        let count = self.text.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.text.split_at(count);
        self.text = rest;
        let at = |place| digits.as_bytes().get(place).map_or(0, |digit| i64::from(digit - b'0'));
        let microseconds = (0..6).fold(0, |sum, place| sum * 10 + at(place));
        (count > 0).then(|| microseconds + i64::from(at(6) >= 5))
    }
}

/// Returns the offset from UTC in a text, in seconds: `Some(None)` for an empty text.
#[expect(clippy::option_option, reason = "no offset is one answer, a text that is none another")]
fn offset(text: &str) -> Option<Option<i64>> {
    let text = text.split_once('[').map_or(text, |(before, _)| before.trim_end());
    if text.is_empty() {
        return Some(None);
    }
    if UTC.contains(&text.to_ascii_uppercase().as_str()) {
        return Some(Some(0));
    }
    // Go writes the offset twice: +0000 UTC.
    let text = text.strip_suffix("UTC").map_or(text, str::trim_end);
    let mut rest = Digits { text };
    let sign = if rest.one_of(&['+', '-', '\u{2212}'])? == '+' { 1 } else { -1 };
    let hours = rest.number(2)?;
    rest.one_of(&[':']);
    let minutes = if rest.text.is_empty() { 0 } else { rest.number(2)? };
    let is_offset = rest.text.is_empty() && hours < 24 && minutes < 60;
    is_offset.then_some(Some(sign * (hours * 60 + minutes) * 60))
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days since 1970-01-01. The years begin in March, so that leap days end them.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn microseconds(text: &str) -> Option<u64> {
        Some(Moment::parse(text)?.microseconds)
    }

    #[test]
    fn times_count_from_1970() {
        assert_eq!(microseconds("1970-01-01 00:00:00"), Some(0));
        assert_eq!(microseconds("2024-02-29T00:00:01Z"), Some(1_709_164_801_000_000));
        assert_eq!(microseconds("2023-11-16 18:17:03.9799600"), Some(1_700_158_623_979_960));
        assert_eq!(microseconds("2024-05-10 00:00:00.009930+00:00"), Some(1_715_299_200_009_930));
    }

    #[test]
    fn offsets_are_converted() {
        let noon = microseconds("2026-10-25T12:00:00Z").expect("a time");
        for text in [
            "2026-10-25 12:00:00",
            "2026-10-25 12:00",
            "2026/10/25 12:00:00.0",
            "20261025T120000Z",
            "2026-10-25t12:00:00z",
            "2026-10-25 12:00:00 UTC",
            "2026-10-25 12:00:00 GMT",
            "2026-10-25T14:00:00+02:00",
            "2026-10-25T14:00:00.000+0200",
            "2026-10-25 14:00:00 +02",
            "2026-10-25 05:00:00-07:00",
            "2026-10-25 05:00:00\u{2212}07:00",
            "2026-10-25 17:30:00,0+05:30",
            "2026-10-25 12:00:00 +0000 UTC",
            "2026-10-25T14:00:00+02:00[Europe/Berlin]",
            "2026-10-24T23:00:00-13:00",
        ] {
            assert_eq!(microseconds(text), Some(noon), "{text}");
        }
        let has_offset = |text| Moment::parse(text).map(|moment| moment.has_offset);
        assert_eq!(has_offset("2026-10-25 12:00:00"), Some(false));
        assert_eq!(has_offset("2026-10-25 12:00:00 UTC"), Some(true));
    }

    #[test]
    fn fractions_are_rounded_to_microseconds() {
        for (fraction, expected) in
            [("5", 500_000), ("123456789", 123_457), ("0000004", 0), ("1234565", 123_457)]
        {
            assert_eq!(microseconds(&format!("1970-01-01 00:00:00.{fraction}Z")), Some(expected));
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "5",
            "2023-13-01 00:00:00",
            "2023-11-16",
            "2023-11-16 24:00:00",
            "2023-02-29 00:00:00",
            "2023-11-16 12:00:00 CEST",
            "2023-11-16 12:00:00 PM",
            "2023-11-16 12:00:00.",
            "2023-11-16 12:00:00+2",
            "2023-11-1612:00:00",
            "16.11.2023 12:00:00",
            "1969-12-31 23:00:00",
            "2023-11-16 12:00:00+99:00",
            "２０２３-11-16 12:00:00",
        ] {
            assert_eq!(microseconds(text), None, "{text}");
        }
    }
}
