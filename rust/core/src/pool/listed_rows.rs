//! Rows of blocks that wait in a list of the adaptive order, whose tags say that nobody uses them.

use super::record::{DOWN, Record, UP, word};
use super::run::Run;
use crate::rows::Row;

/// The blocks in a row that one of a list begins with, at most so many.
pub fn row_from(records: &[Record], first: u32, most: usize) -> Row {
    let (up, down) = (records[first as usize..].iter(), records[..=first as usize].iter().rev());
    let others = most.saturating_sub(1);
    let last = match records[first as usize][word::NEXT] {
        UP => first + num_leading(up.take(others), UP),
        DOWN => first - num_leading(down.take(others), DOWN),
        _ => first,
    };
    Row { first, last }
}

/// How many records in front lead one step on.
#[inline]
fn num_leading<'a>(records: impl Iterator<Item = &'a Record>, step: u32) -> u32 {
    records.take_while(|record| record[word::NEXT] == step).count() as u32
}

/// Adds a reference to each of some free blocks in a row, if they stand in a row in their list too:
/// the run that they are.
pub fn touch_listed_row(records: &mut [Record], row: Row) -> Option<Run> {
    let records = row.of_list(records)?;
    let (low, high, len) = (row.first.min(row.last), row.first.max(row.last), row.len());
    // Whether each but the last leads to the next. No block is behind itself, so that no other step
    // has all bits of one down.
    let (others, run) = match records[0][word::NEXT] {
        UP => (0..len - 1, Run { front: low, back: high, len }),
        _ => (1..len, Run { front: high, back: low, len }),
    };
    let is_row = match run.front < run.back {
        true => touch_each(&mut records[others.clone()], UP, |any, next| any | next) == UP,
        false => touch_each(&mut records[others.clone()], DOWN, |all, next| all & next) == DOWN,
    };
    if !is_row {
        records[others].iter_mut().for_each(|record| record[word::USE] -= 1);
        return None;
    }
    records[if others.start == 0 { len - 1 } else { 0 }][word::USE] += 1;
    Some(run)
}

/// Adds a reference to each, and puts together what leads to the next ones.
#[inline]
fn touch_each(records: &mut [Record], first: u32, together: impl Fn(u32, u32) -> u32) -> u32 {
    let mut steps = first;
    let mut touch = |record: &mut Record| {
        steps = together(steps, record[word::NEXT]);
        record[word::USE] += 1;
    };
    let (parts, rest) = records.as_chunks_mut::<8>();
    parts.iter_mut().for_each(|part| part.iter_mut().for_each(&mut touch));
    rest.iter_mut().for_each(touch);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::record;

    /// Blocks 1 to 5 in a list, in an order, and a record beside them.
    fn records(order: [u32; 5]) -> Vec<Record> {
        let mut records = vec![Record::default(); 7];
        order.windows(2).for_each(|pair| record::join(&mut records, pair[0], pair[1]));
        record::join(&mut records, order[4], 6);
        records
    }

    #[test]
    fn blocks_in_a_row_of_their_list_are_touched_and_no_others() {
        let row = Row { first: 1, last: 5 };
        for order in [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]] {
            for row in [row, row.turned()] {
                let mut records = records(order);
                let run = touch_listed_row(&mut records, row).expect("a run");
                assert_eq!((run.front, run.back, run.len), (order[0], order[4], 5));
                let uses: Vec<_> = records.iter().map(|record| record[word::USE]).collect();
                assert_eq!(uses, [0, 1, 1, 1, 1, 1, 0]);
            }
        }
        for order in [[1, 2, 4, 3, 5], [2, 1, 3, 4, 5], [5, 3, 4, 2, 1], [1, 2, 3, 5, 4]] {
            let mut records = records(order);
            assert!(touch_listed_row(&mut records, row).is_none());
            assert!(records.iter().all(|record| record[word::USE] == 0));
        }
    }
}
