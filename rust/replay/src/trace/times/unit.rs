//! Units of times that are numbers.

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 1 s.
    Seconds,
    /// 1 ms.
    Milliseconds,
    /// 1 us.
    Microseconds,
    /// 1 ns.
    Nanoseconds,
}

/// The range of times since 1970, in seconds: 2015 to 2100.
const EPOCH: std::ops::Range<f64> = 1.42e9..4.1e9;

/// The last words of names of fields, for each unit.
const UNITS_OF_FIELDS: [&[&str]; 4] = [
    &["s", "sec", "secs", "second", "seconds"],
    &["ms", "msec", "millis", "milliseconds"],
    &["us", "usec", "micros", "microseconds"],
    &["ns", "nsec", "nano", "nanos", "nanoseconds"],
];

impl Unit {
    /// All units, the longest first.
    pub const ALL: [Self; 4] =
        [Self::Seconds, Self::Milliseconds, Self::Microseconds, Self::Nanoseconds];

    /// Returns the unit with a short name: s, ms, us or ns.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// Returns the short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
        }
    }

    /// Returns the name in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
        }
    }

    /// Returns the number of units in a second.
    pub fn per_second(self) -> f64 {
        match self {
            Self::Seconds => 1.0,
            Self::Milliseconds => 1e3,
            Self::Microseconds => 1e6,
            Self::Nanoseconds => 1e9,
        }
    }

    /// Returns a time of this unit in microseconds.
    pub fn microseconds(self, time: f64) -> u64 {
        (time / self.per_second() * 1e6).round() as u64
    }

    /// Returns the unit in which a number is a time since 1970, judged by its size.
    pub fn since_1970(time: f64) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| EPOCH.contains(&(time / unit.per_second())))
    }

    /// Returns the unit at the end of a field's name, such as `start_ns` or `time_unix_ms`.
    pub fn of_field(name: &str) -> Option<Self> {
        let has_words = name.bytes().any(|byte| !byte.is_ascii_alphanumeric());
        if !has_words && !name.ends_with("UnixNano") {
            return None;
        }
        let name = name.trim_end_matches([')', ']', ' ']);
        let last = name.rsplit(['_', '.', ' ', '(', '[', '-']).next()?;
        if last.ends_with("UnixNano") {
            return Some(Self::Nanoseconds);
        }
        let is_word = last.len() < name.len();
        let has = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(last));
        let unit = Self::ALL.into_iter().zip(UNITS_OF_FIELDS);
        unit.filter(|_| is_word).find(|(_, names)| has(names)).map(|(unit, _)| unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_this_century_has_one_unit() {
        let seconds = 1_790_000_000.125;
        for unit in Unit::ALL {
            assert_eq!(Unit::since_1970(seconds * unit.per_second()), Some(unit));
            assert_eq!(unit.microseconds(seconds * unit.per_second()), 1_790_000_000_125_000);
            assert_eq!(Unit::named(unit.name()), Some(unit));
        }
        assert_eq!(Unit::named("min"), None);
        let others = [0.0, 11.0, 9e8, 1e10, 5e12, 1e20];
        assert!(others.iter().all(|&time| Unit::since_1970(time).is_none()));
    }

    #[test]
    fn names_of_fields_say_units() {
        for (name, unit) in [
            ("request_start_ns", Some(Unit::Nanoseconds)),
            ("startTimeUnixNano", Some(Unit::Nanoseconds)),
            ("timestamp_start_unix_ms", Some(Unit::Milliseconds)),
            ("Arrival (s)", Some(Unit::Seconds)),
            ("arrival_us", Some(Unit::Microseconds)),
            ("timestamps", None),
            ("s", None),
            ("requests", None),
        ] {
            assert_eq!(Unit::of_field(name), unit, "{name}");
        }
    }
}
