//! Azure's tables of LLM inference: lengths and times of requests.
//! Source: <https://github.com/Azure/AzurePublicDataset>

use super::{Columns, Dialect, Form};

pub const AZURE: Dialect = Dialect {
    name: "azure",
    form: Form::Table(Columns {
        time: "TIMESTAMP",
        input: "ContextTokens",
        output: "GeneratedTokens",
        session: None,
        unused: &[],
        microseconds,
    }),
};

/// Returns the microseconds since 1970 of a time such as `2023-11-16 18:17:03.9799600` or
/// `2024-05-10 00:00:00.009930+00:00`; all times of a trace have the same offset.
fn microseconds(text: &str) -> Option<u64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let time = time.trim_end_matches('Z').split('+').next()?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':');
    let (hour, minute) = (time.next()?.parse::<u64>().ok()?, time.next()?.parse::<u64>().ok()?);
    let second = time.next()?.parse::<f64>().ok()?;
    let is_time = (1970..3000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && (0.0..61.0).contains(&second);
    let seconds = || (days(year, month, day) * 24 + hour) * 3600 + minute * 60;
    is_time.then(|| seconds() * 1_000_000 + (second * 1e6).round() as u64)
}

/// Returns the days since 1970-01-01. The years begin in March, so that leap days end them.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_1970() {
        assert_eq!(microseconds("1970-01-01 00:00:00"), Some(0));
        assert_eq!(microseconds("2024-02-29T00:00:01Z"), Some(1_709_164_801_000_000));
        assert_eq!(microseconds("2023-11-16 18:17:03.9799600"), Some(1_700_158_623_979_960));
        assert_eq!(microseconds("2024-05-10 00:00:00.009930+00:00"), Some(1_715_299_200_009_930));
        let wrong = ["", "5", "2023-13-01 00:00:00", "2023-11-16", "2023-11-16 24:00:00"];
        wrong.iter().for_each(|text| assert_eq!(microseconds(text), None, "{text}"));
    }
}
