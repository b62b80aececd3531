//! Infers the unit of numbers from how far apart they are.

use super::unit::Unit;

/// Thresholds for numbers with fractions, in units between requests on average. Numbers with
/// fractions are seconds in two cases. In the first case, they are closer together than `CLOSE` and
/// span at most `SHORT`. In the second case, they are closer than `VERY_CLOSE`, and no server gets
/// so many requests as milliseconds would mean. Other numbers may be milliseconds of a dense load,
/// such as 2,000 requests at 100 per second.
const CLOSE: f64 = 20.0;
const SHORT: f64 = 3600.0;
const VERY_CLOSE: f64 = 0.5;
/// Thresholds for numbers with fractions that are milliseconds although they are close. They are at
/// least `FAST` units apart, and there are at least `FEW_REQUESTS` of them. As seconds they would
/// mean fewer than `FEW_TOKENS` tokens per second, and no server is sized for such a small load.
const FAST: f64 = 8.0;
const FEW_REQUESTS: usize = 20;
const FEW_TOKENS: f64 = 200.0;
/// The seconds between requests on average above which times with fractions have a smaller unit
/// than milliseconds.
const SLOW: f64 = 60.0;
/// The seconds between requests on average below or above which a note is added.
const DENSE: f64 = 0.05;
const DENSE_WITH_FRACTIONS: f64 = 1.0;
const SPARSE: f64 = 600.0;
/// The seconds between requests on average that no trace of a server exceeds.
const SENSELESS: f64 = 86_400.0;

/// The inferred unit of the numbers of a trace, and the reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Judgement {
    /// The numbers are of this unit, without doubt.
    Plain(Unit),
    /// The numbers are of this unit, since they count from 1970.
    Since1970(Unit),
    /// The numbers are of several units since 1970.
    Several,
    /// The numbers are seconds, since they are fractions close together.
    Fractions,
    /// The numbers are of this unit, since in another unit they would be too far apart.
    Apart(Unit),
    /// The numbers are of the first unit, or perhaps of the second.
    Doubtful(Unit, Unit),
}

/// The distribution of numbers that do not count from 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub count: usize,
    /// The average distance between neighbours.
    pub gap: f64,
    pub span: f64,
    pub has_fractions: bool,
    /// The number of tokens of all requests; 0 if it is not known.
    pub num_tokens: usize,
}

impl Spread {
    /// Returns the judgement of the numbers.
    pub fn judgement(&self, default: Unit) -> Judgement {
        let seconds = self.gap / default.per_second();
        if self.gap == 0.0 {
            return Judgement::Plain(default);
        }
        let may_be_seconds = default != Unit::Seconds && self.has_fractions;
        if may_be_seconds && self.are_close() && !self.is_idle_in_seconds() {
            return Judgement::Fractions;
        }
        if let Some(unit) = self.smaller_unit(seconds, default) {
            return Judgement::Apart(unit);
        }
        let dense = if self.has_fractions { DENSE_WITH_FRACTIONS } else { DENSE };
        // Formats with times in milliseconds write them as integers.
        let sparse = if self.has_fractions { DENSE_WITH_FRACTIONS } else { SPARSE };
        match default {
            Unit::Milliseconds if seconds < dense => Judgement::Doubtful(default, Unit::Seconds),
            Unit::Milliseconds if seconds > sparse => {
                Judgement::Doubtful(default, Unit::Microseconds)
            }
            Unit::Seconds if seconds > SPARSE => Judgement::Doubtful(default, Unit::Milliseconds),
            _ => Judgement::Plain(default),
        }
    }

    /// Returns whether the numbers are as close together as seconds.
    fn are_close(&self) -> bool {
        (self.gap < CLOSE && self.span <= SHORT) || self.gap < VERY_CLOSE
    }

    /// Returns whether the requests would be almost no load if the numbers were seconds.
    fn is_idle_in_seconds(&self) -> bool {
        let tokens_per_second = self.num_tokens as f64 / self.span;
        let is_known = self.num_tokens > 0 && self.count >= FEW_REQUESTS;
        is_known && self.gap >= FAST && tokens_per_second < FEW_TOKENS
    }

    /// Returns the smaller unit of numbers that are too far apart in the default unit.
    fn smaller_unit(&self, seconds: f64, default: Unit) -> Option<Unit> {
        let has_gap = |range: std::ops::Range<f64>| {
            move |unit: &Unit| range.contains(&(self.gap / unit.per_second()))
        };
        if self.has_fractions {
            let most = if default == Unit::Seconds { SENSELESS } else { SLOW };
            let is_sensible = has_gap(1e-3..SLOW);
            return Unit::ALL.into_iter().filter(|_| seconds > most).find(is_sensible);
        }
        let mut sensible = Unit::ALL.into_iter().filter(has_gap(1e-3..SPARSE));
        let only = sensible.next().filter(|_| sensible.next().is_none());
        only.filter(|_| seconds > SENSELESS)
    }
}

impl Judgement {
    /// Returns the unit of a number.
    pub fn unit(self, time: f64) -> Unit {
        match self {
            Self::Plain(unit)
            | Self::Since1970(unit)
            | Self::Apart(unit)
            | Self::Doubtful(unit, _) => unit,
            Self::Fractions => Unit::Seconds,
            Self::Several => Unit::since_1970(time).unwrap_or(Unit::Milliseconds),
        }
    }

    /// Returns the note that names the unit, if it was inferred or is in doubt.
    pub fn note(self, what: &str) -> Option<String> {
        let other = "use --time-unit for another unit";
        Some(match self {
            Self::Plain(_) => return None,
            Self::Since1970(unit) => {
                format!("times are read as {} since 1970: {what}; {other}", unit.word())
            }
            Self::Several => {
                format!("times since 1970 have several units, read by their size: {what}; {other}")
            }
            Self::Fractions => format!(
                "times are read as seconds, because they are fractions close together: {what}; use \
                 --time-unit ms for milliseconds"
            ),
            Self::Apart(unit) => {
                format!("times are read as {}, by their size: {what}; {other}", unit.word())
            }
            Self::Doubtful(unit, perhaps) => format!(
                "times are read as {}: {what}; use --time-unit {} for {}",
                unit.word(),
                perhaps.name(),
                perhaps.word()
            ),
        })
    }
}
