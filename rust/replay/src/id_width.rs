//! Finds the number of tokens per id in a trace. The lengths of the trace's prompts and their
//! numbers of ids mostly leave only one number possible.

use serde::{Deserialize, Serialize};

/// The possible numbers of tokens per id, from `least` to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdWidths {
    /// The smallest number.
    pub least: usize,
    /// The largest number.
    pub most: usize,
}

/// The number of tokens per id in Mooncake's traces. It is the default wherever it is possible.
pub const MOONCAKE: usize = 512;

/// The most tokens per id.
pub const MAX_WIDTH: usize = 1 << 28;

impl Default for IdWidths {
    fn default() -> Self {
        Self { least: 1, most: MAX_WIDTH }
    }
}

impl IdWidths {
    /// Returns a range with one number.
    pub fn only(width: usize) -> Self {
        Self { least: width, most: width }
    }

    /// Returns the numbers that are possible for a prompt of `length` tokens and `num_ids` ids.
    /// Neither is 0.
    pub fn of_prompt(length: usize, num_ids: usize) -> Self {
        let least = length.div_ceil(num_ids);
        let most = (length - 1).checked_div(num_ids - 1).unwrap_or(MAX_WIDTH);
        Self { least, most }
    }

    /// Returns the numbers that are possible for a prompt in which only whole blocks have ids.
    pub fn of_whole(length: usize, num_ids: usize) -> Self {
        let most = length.checked_div(num_ids).unwrap_or(MAX_WIDTH);
        Self { least: length / (num_ids + 1) + 1, most }
    }

    /// Returns whether a number is in the range.
    pub fn has(&self, width: usize) -> bool {
        (self.least..=self.most).contains(&width)
    }

    /// Returns the numbers in both ranges, if there are any.
    pub fn and(self, other: Self) -> Option<Self> {
        let both = Self { least: self.least.max(other.least), most: self.most.min(other.most) };
        (both.least <= both.most).then_some(both)
    }

    /// Returns Mooncake's number if it is possible. Otherwise returns the only number, or the only
    /// power of two, in the range.
    pub fn chosen(self) -> Option<usize> {
        let Self { least, most } = self;
        if self.has(MOONCAKE) {
            return Some(MOONCAKE);
        }
        let power = least.next_power_of_two();
        match (least == most, power <= most && 2 * power > most) {
            (true, _) => Some(least),
            (false, true) => Some(power),
            (false, false) => None,
        }
    }
}

/// The numbers that are possible for all prompts of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceWidths {
    /// The numbers if all tokens of prompts have ids.
    all: Option<IdWidths>,
    /// The numbers if only whole blocks have ids, so that the rest of a prompt has none.
    whole: Option<IdWidths>,
}

impl Default for TraceWidths {
    fn default() -> Self {
        Self::of(IdWidths::default())
    }
}

impl TraceWidths {
    /// Returns the numbers in a range.
    pub fn of(widths: IdWidths) -> Self {
        Self { all: Some(widths), whole: Some(widths) }
    }

    /// Returns whether only whole blocks can have ids.
    pub fn is_of_whole(self) -> bool {
        self.all.is_none()
    }

    /// Returns the numbers that are also possible for another prompt and in `limits`. If none is,
    /// fails with the numbers that were possible before.
    pub fn with(self, limits: IdWidths, length: usize, num_ids: usize) -> Result<Self, IdWidths> {
        let [all, whole] = [self.all, self.whole].map(|widths| widths?.and(limits));
        let with = Self {
            all: all.and_then(|widths| widths.and(IdWidths::of_prompt(length, num_ids))),
            whole: whole.and_then(|widths| widths.and(IdWidths::of_whole(length, num_ids))),
        };
        let is_possible = with.all.or(with.whole).is_some();
        if is_possible { Ok(with) } else { Err(all.or(whole).unwrap_or(limits)) }
    }

    /// Returns the numbers if all tokens have ids. If none is possible, returns the numbers for
    /// whole blocks.
    pub fn range(self) -> IdWidths {
        self.all.or(self.whole).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_leave_the_widths_at_which_they_have_so_many_ids() {
        for length in 1..200_usize {
            for num_ids in 1..=length {
                let all = IdWidths::of_prompt(length, num_ids);
                let fits = |width: usize| length.div_ceil(width) == num_ids;
                assert!((1..=length + 1).all(|width| fits(width) == all.has(width)));
                let whole = IdWidths::of_whole(length, num_ids);
                let fits = |width: usize| length / width == num_ids;
                assert!((1..=length + 1).all(|width| fits(width) == whole.has(width)));
            }
        }
    }

    #[test]
    fn of_several_widths_the_usual_one_is_chosen() {
        let chosen = |least, most| IdWidths { least, most }.chosen();
        assert_eq!(chosen(500, 520), Some(512));
        assert_eq!(chosen(1, MAX_WIDTH), Some(512));
        assert_eq!(chosen(60, 70), Some(64));
        assert_eq!(chosen(64, 64), Some(64));
        assert_eq!(chosen(100, 100), Some(100));
        assert_eq!(chosen(65, 70), None);
        assert_eq!(chosen(60, 130), None, "64 and 128");
    }

    #[test]
    fn prompts_that_contradict_each_other_leave_none() {
        let of = IdWidths::of_prompt;
        assert_eq!(of(640, 10).and(of(641, 11)), Some(IdWidths::only(64)));
        assert_eq!(of(640, 10).and(of(640, 20)), None);
    }
}
