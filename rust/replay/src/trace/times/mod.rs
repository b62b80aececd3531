//! The times at which requests arrive. Their unit may have to be inferred from all times of a
//! trace.

mod judgement;
mod text;
mod unit;

use super::request::TraceRequest;
use judgement::{Judgement, Spread};
pub use text::{EXPECTED, Moment};
pub use unit::Unit;

/// The way in which numbers are read.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// The unit is given by the format or by the name of the field.
    Sure(Unit),
    /// The unit is not given; this one is most likely.
    Default(Unit),
}

/// The times of a trace.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// The unit that the caller gave.
    pub given: Option<Unit>,
    default: Option<Unit>,
    /// Numbers without a sure unit, with the indices of their requests.
    numbers: Vec<(u32, f64)>,
    num_sure: usize,
    num_with_offset: usize,
    num_without_offset: usize,
    is_unit_applied: bool,
    notes: Vec<String>,
}

impl Times {
    /// Returns the microseconds of a number that is the time of a request. Until
    /// [`Self::apply_inferred_unit`], numbers without a sure unit have the default unit.
    pub fn number(&mut self, request: usize, time: f64, scale: Scale) -> u64 {
        match scale {
            Scale::Sure(unit) => {
                self.num_sure += 1;
                unit.microseconds(time)
            }
            Scale::Default(unit) => {
                let unit = self.given.unwrap_or(unit);
                self.default = Some(unit);
                self.numbers.push((request as u32, time));
                unit.microseconds(time)
            }
        }
    }

    /// Returns the microseconds of a text that is the time of a request.
    pub fn text(&mut self, moment: Moment) -> u64 {
        match moment.has_offset {
            true => self.num_with_offset += 1,
            false => self.num_without_offset += 1,
        }
        moment.microseconds
    }

    /// Forgets the numbers of requests from an index on, after their line was refused.
    pub fn forget_from(&mut self, request: usize) {
        while self.numbers.last().is_some_and(|&(index, _)| index as usize >= request) {
            self.numbers.pop();
        }
    }

    /// Returns whether there is a time.
    pub fn are_any(&self) -> bool {
        self.num_sure + self.num_with_offset + self.num_without_offset > 0 || self.default.is_some()
    }

    /// Gives each request the time of its number in the inferred unit. Later numbers keep the
    /// default unit. Returns whether the order of times may have changed.
    pub fn apply_inferred_unit(&mut self, requests: &mut [TraceRequest]) -> bool {
        if std::mem::replace(&mut self.is_unit_applied, true) {
            return false;
        }
        let tokens = requests.iter().map(|it| it.prompt.len() + it.output_length);
        let judgement = self.judgement(tokens.sum());
        if let Some(judgement) = judgement {
            for &(index, time) in &self.numbers {
                let unit = Some(judgement.unit(time)).filter(|&unit| Some(unit) != self.default);
                if let (Some(unit), Some(request)) = (unit, requests.get_mut(index as usize)) {
                    request.arrival = Some(unit.microseconds(time));
                }
            }
            let arrivals = self.numbers.iter().filter_map(|&(index, _)| {
                requests.get(index as usize).and_then(|request| request.arrival)
            });
            let (first, last) = arrivals
                .fold((u64::MAX, 0), |(first, last), time| (first.min(time), last.max(time)));
            let what = format!(
                "{} requests in {}",
                self.numbers.len(),
                duration(last.saturating_sub(first))
            );
            self.notes.extend(judgement.note(&what));
        }
        self.notes.extend(self.note_of_given());
        self.notes.extend(self.note_of_texts());
        let num_texts = self.num_with_offset + self.num_without_offset;
        judgement == Some(Judgement::Several) || (num_texts > 0 && !self.numbers.is_empty())
    }

    /// Returns the notes about the times.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the judgement of the numbers; `None` if there are none.
    fn judgement(&self, num_tokens: usize) -> Option<Judgement> {
        let default = self.default?;
        if self.given.is_some() || self.numbers.len() < 2 {
            return Some(Judgement::Plain(default));
        }
        let times = || self.numbers.iter().map(|&(_, time)| time);
        let (mut least, mut least_known) = (f64::INFINITY, f64::INFINITY);
        let (mut most, mut has_fractions) = (0.0_f64, false);
        for time in times() {
            (least, most) = (least.min(time), most.max(time));
            // Zeros are written if no time was known.
            least_known = if time == 0.0 { least_known } else { least_known.min(time) };
            has_fractions |= time.fract() != 0.0;
        }
        if let Some(first) = Unit::since_1970(least_known) {
            let mut known = times().filter(|&time| time != 0.0).map(Unit::since_1970);
            if known.all(|unit| unit == Some(first)) {
                return Some(match least == 0.0 {
                    _ if first == default => Judgement::Plain(default),
                    true => Judgement::Doubtful(default, first),
                    false => Judgement::Since1970(first),
                });
            }
            if least > 0.0 && times().all(|time| Unit::since_1970(time).is_some()) {
                return Some(Judgement::Several);
            }
        }
        let (count, span) = (self.numbers.len(), most - least);
        let gap = span / (count - 1) as f64;
        Some(Spread { count, gap, span, has_fractions, num_tokens }.judgement(default))
    }

    fn note_of_given(&self) -> Option<String> {
        let given = self.given?;
        let num_others = self.num_sure + self.num_with_offset + self.num_without_offset;
        let is_unused = self.numbers.is_empty() && num_others > 0;
        let name = given.name();
        is_unused.then(|| {
            format!("--time-unit {name} is not used, because the trace names its own units")
        })
    }

    fn note_of_texts(&self) -> Option<String> {
        let num_texts = self.num_with_offset + self.num_without_offset;
        if !self.numbers.is_empty() && num_texts > 0 {
            let num_numbers = self.numbers.len();
            return Some(format!(
                "{num_numbers} times are numbers and {num_texts} are text; the text counts from \
                 1970"
            ));
        }
        let is_mixed = self.num_with_offset > 0 && self.num_without_offset > 0;
        is_mixed.then(|| {
            format!("{} times have no offset and are read as UTC", self.num_without_offset)
        })
    }
}

/// Returns a duration in words, in microseconds.
fn duration(microseconds: u64) -> String {
    let seconds = microseconds as f64 / 1e6;
    let (number, unit) = match seconds {
        ..120.0 => (seconds, "s"),
        ..7200.0 => (seconds / 60.0, "minutes"),
        ..172_800.0 => (seconds / 3600.0, "hours"),
        _ => (seconds / 86_400.0, "days"),
    };
    let places = if number < 1.0 { 3 } else { 1 };
    let text = format!("{number:.places$}");
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the judgement of numbers of a trace with a default unit.
    fn judged(numbers: &[f64], default: Unit) -> Option<Judgement> {
        let mut times = Times::default();
        for (index, &time) in numbers.iter().enumerate() {
            times.number(index, time, Scale::Default(default));
        }
        times.judgement(0)
    }

    #[test]
    fn units_are_inferred_where_they_are_certain() {
        use Judgement::{Apart, Doubtful, Fractions, Plain, Several, Since1970};
        use Unit::{Microseconds, Milliseconds, Nanoseconds, Seconds};
        let cases: &[(&[f64], Judgement)] = &[
            (&[0.0, 3000.0, 6000.0], Plain(Milliseconds)),
            (&[0.0, 0.0], Plain(Milliseconds)),
            (&[0.0], Plain(Milliseconds)),
            (&[0.0, 700.25, 1500.5, 9000.0], Doubtful(Milliseconds, Microseconds)),
            (&[0.0, 100_250.5, 210_000.0], Apart(Microseconds)),
            (&[0.0, 5.5e6 + 0.5, 11e6], Apart(Microseconds)),
            (&[0.0, 1e8 + 0.5, 2e8], Apart(Nanoseconds)),
            (&[0.0, 1.79e9, 1.79e9 + 5.0], Doubtful(Milliseconds, Seconds)),
            (&[0.0, 2e9, 5e9], Apart(Nanoseconds)),
            (&[1.79e12, 1.79e12 + 5.0], Plain(Milliseconds)),
            (&[1.79e9 + 0.125, 1.79e9 + 10.25], Since1970(Seconds)),
            (&[1.79e9, 1.79e9], Since1970(Seconds)),
            (&[1.79e15, 1.79e15 + 5e6], Since1970(Microseconds)),
            (&[1.79e18, 1.79e18 + 5e9], Since1970(Nanoseconds)),
            (&[1.79e9, 1.79e12], Several),
            (&[0.0, 5.5, 11.0], Fractions),
            (&[98_234.125, 98_240.5, 98_236.0], Fractions),
            (&[0.0, 40.5, 81.0], Doubtful(Milliseconds, Seconds)),
            (&[0.0, 5.0, 11.0], Doubtful(Milliseconds, Seconds)),
            (&[0.0, 5.5e6, 11e6], Doubtful(Milliseconds, Microseconds)),
            (&[0.0, 5.5e9, 11e9], Apart(Nanoseconds)),
        ];
        for (numbers, expected) in cases {
            assert_eq!(judged(numbers, Milliseconds), Some(*expected), "{numbers:?}");
        }
        let in_seconds: &[(&[f64], Judgement)] = &[
            (&[0.0, 0.25], Plain(Seconds)),
            (&[0.0, 99.5], Plain(Seconds)),
            (&[0.0, 1e5 + 0.5], Apart(Microseconds)),
            (&[1.79e9, 1.79e9 + 1.0], Plain(Seconds)),
            (&[1.79e12, 1.79e12 + 1.0], Since1970(Milliseconds)),
            (&[0.0, 5000.0, 9000.0], Doubtful(Seconds, Milliseconds)),
        ];
        for (numbers, expected) in in_seconds {
            assert_eq!(judged(numbers, Seconds), Some(*expected), "{numbers:?}");
        }
        assert_eq!(judged(&[], Seconds), None);
    }

    #[test]
    fn fractions_of_a_dense_load_stay_milliseconds() {
        let judged_of = |gap: f64, count: u32| {
            let numbers: Vec<_> = (0..count).map(|index| f64::from(index) * gap + 0.25).collect();
            judged(&numbers, Unit::Milliseconds)
        };
        let stays = Some(Judgement::Doubtful(Unit::Milliseconds, Unit::Seconds));
        for (gap, count) in [(16.7, 2_000), (10.1, 20_000), (2.02, 2_000), (1.01, 20_000)] {
            assert_eq!(judged_of(gap, count), stays, "{count} requests, {gap} apart");
        }
        for (gap, count) in [(5.5, 3), (16.7, 200), (1.01, 2_000), (0.1, 60_000)] {
            let found = judged_of(gap, count);
            assert_eq!(found, Some(Judgement::Fractions), "{count} requests, {gap} apart");
        }
    }

    #[test]
    fn a_load_that_no_server_is_sized_for_is_in_milliseconds() {
        let judged_of = |gap: f64, count: u32, num_tokens: usize| {
            let mut times = Times::default();
            for index in 0..count {
                let time = f64::from(index) * gap + 0.25;
                times.number(index as usize, time, Scale::Default(Unit::Milliseconds));
            }
            times.judgement(num_tokens)
        };
        let stays = Some(Judgement::Doubtful(Unit::Milliseconds, Unit::Seconds));
        assert_eq!(judged_of(10.1, 200, 200 * 600), stays);
        for (gap, count, each) in [(10.1, 200, 20_000), (10.1, 10, 600), (2.5, 200, 300)] {
            let found = judged_of(gap, count, count as usize * each);
            assert_eq!(found, Some(Judgement::Fractions), "{count} requests, {gap} apart");
        }
    }

    #[test]
    fn a_given_unit_is_not_inferred() {
        let mut times = Times { given: Some(Unit::Microseconds), ..Times::default() };
        times.number(0, 0.5, Scale::Default(Unit::Milliseconds));
        times.number(1, 1.79e9, Scale::Default(Unit::Milliseconds));
        assert_eq!(times.judgement(0), Some(Judgement::Plain(Unit::Microseconds)));
        times.apply_inferred_unit(&mut []);
        assert!(times.notes().is_empty());
        let mut sure = Times { given: Some(Unit::Microseconds), ..Times::default() };
        assert_eq!(sure.number(0, 2.0, Scale::Sure(Unit::Seconds)), 2_000_000);
        sure.apply_inferred_unit(&mut []);
        let note = "--time-unit us is not used, because the trace names its own units";
        assert_eq!(sure.notes(), [note]);
    }

    #[test]
    fn numbers_of_refused_lines_are_forgotten() {
        let mut times = Times::default();
        for request in [0, 1, 1] {
            times.number(request, 5.0, Scale::Default(Unit::Seconds));
        }
        times.forget_from(1);
        assert_eq!(times.numbers.len(), 1);
    }

    #[test]
    fn durations_are_short_words() {
        for (microseconds, text) in [
            (11_000, "0.011 s"),
            (20_375_000, "20.4 s"),
            (11_000_000, "11 s"),
            (1_800_000_000, "30 minutes"),
            (11_000_000_000, "3.1 hours"),
            (864_000_000_000, "10 days"),
            (0, "0 s"),
        ] {
            assert_eq!(duration(microseconds), text);
        }
    }
}
