//! The order in which requests that wait for others can arrive, and the requests that never can.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::dialect::connect;
use super::fields::{LineError, wrong};
use super::{Reader, Trace, TraceRequest};

/// The maximum number of requests of a circle that an error names.
const MAX_NAMED: usize = 8;

impl Trace {
    /// Ends the reading of lines. If lines are not in order of time, it sorts the requests. Their
    /// order is then the order in which they would arrive if no answer took any time.
    ///
    /// If requests wait for others that never come, it returns an error. With `leaves_out`, it
    /// leaves these requests out and returns their number.
    pub fn finish(&mut self, reader: &mut Reader, leaves_out: bool) -> Result<usize, LineError> {
        if let Some(error) = reader.unfinished() {
            return Err(error);
        }
        reader.reading.apply_inferred_unit(&mut self.requests);
        if !reader.reading.is_unordered {
            self.order_by_time(reader);
            return Ok(0);
        }
        connect(&mut self.requests, &reader.reading.spans);
        let order = arrival_order(&self.requests);
        let num_left_out = self.requests.len() - order.len();
        if num_left_out > 0 && !leaves_out {
            return Err(self.why_never(&order, reader));
        }
        self.reorder(&order);
        reader.reading.is_finished = true;
        Ok(num_left_out)
    }

    /// Sorts requests by arrival if their lines are in another order.
    fn order_by_time(&mut self, reader: &mut Reader) {
        let may_be_late = reader.reading.times.are_any() && reader.reading.order.may_be_late();
        let are_timed = || self.requests.iter().all(|it| it.arrival.is_some() && it.wait.is_none());
        let are_late = || !self.requests.is_sorted_by_key(|request| request.arrival);
        if may_be_late && are_timed() && are_late() {
            self.sort_by_arrival();
            reader.reading.is_finished = true;
            let note = "lines are not in order of time; requests are replayed in order of arrival";
            reader.reading.note(note);
        }
    }

    /// Returns the index of the first request that never arrives. Such a request waits for another
    /// such request, or for a missing one.
    pub fn first_never_arriving(&self) -> Option<usize> {
        if self.requests.iter().all(|request| request.wait.is_none()) {
            return None;
        }
        are_missing(&arrival_order(&self.requests), self.requests.len()).position(|it| it)
    }

    /// Sorts the requests by these indices, and leaves all other requests out.
    pub(super) fn reorder(&mut self, order: &[u32]) {
        let mut requests: Vec<_> = self.requests.drain(..).map(Some).collect();
        let of_old =
            order.iter().zip(0..).map(|(&old, new)| (old, new)).collect::<HashMap<_, u32>>();
        for request in order.iter().filter_map(|&old| requests[old as usize].take()) {
            self.requests.push(request);
        }
        let waits = self.requests.iter_mut().filter_map(|request| request.wait.as_mut());
        for after in waits.flat_map(|wait| &mut wait.after) {
            after.request = of_old.get(&after.request).copied().unwrap_or(u32::MAX);
        }
    }

    /// Returns the error that says why requests are not in the order of arrivals.
    fn why_never(&self, order: &[u32], reader: &Reader) -> LineError {
        if let Some((follower, name)) = reader.reading.first_awaited() {
            let message =
                format!("of request {} is {name}, but no line so far has that name", follower + 1);
            return wrong("wait_for", message);
        }
        let missing: Vec<_> = are_missing(order, self.requests.len()).collect();
        let (mut path, mut places) = (Vec::new(), HashMap::new());
        let mut at = missing.iter().position(|&it| it).unwrap_or(0);
        while !places.contains_key(&at) {
            places.insert(at, path.len());
            path.push((at + 1).to_string());
            let after = self.requests[at].wait.iter().flat_map(|wait| &wait.after);
            let mut others = after.map(|it| it.request as usize);
            let Some(next) = others.find(|&other| missing.get(other) == Some(&true)) else {
                let message = format!("request {} waits for a request that does not exist", at + 1);
                return wrong("", message);
            };
            at = next;
        }
        let circle: Vec<_> = path.drain(places[&at]..).take(MAX_NAMED).collect();
        wrong("", format!("requests wait for each other in a circle: {}", circle.join(", ")))
    }
}

/// Returns for each request whether it is missing in an order.
fn are_missing(order: &[u32], num_requests: usize) -> impl Iterator<Item = bool> {
    let mut are_missing = vec![true; num_requests];
    order.iter().for_each(|&index| are_missing[index as usize] = false);
    are_missing.into_iter()
}

/// Returns the indices of requests in the order in which they arrive if answers take no time.
/// Requests that never arrive are not among them.
fn arrival_order(requests: &[TraceRequest]) -> Vec<u32> {
    let mut times: Vec<_> = requests.iter().map(|request| request.arrival.unwrap_or(0)).collect();
    let mut num_awaited = vec![0_usize; requests.len()];
    let mut followers: HashMap<u32, Vec<(usize, u64)>> = HashMap::new();
    for (index, request) in requests.iter().enumerate() {
        for after in request.wait.iter().flat_map(|wait| &wait.after) {
            num_awaited[index] += 1;
            followers.entry(after.request).or_default().push((index, after.delay));
        }
    }
    let is_free = |&index: &usize| num_awaited[index] == 0;
    let free = (0..requests.len()).filter(is_free).map(|index| Reverse((times[index], index)));
    let mut free: BinaryHeap<_> = free.collect();
    let mut order = Vec::with_capacity(requests.len());
    while let Some(Reverse((time, index))) = free.pop() {
        order.push(index as u32);
        for (follower, delay) in followers.remove(&(index as u32)).unwrap_or_default() {
            times[follower] = times[follower].max(time.saturating_add(delay));
            num_awaited[follower] -= 1;
            if num_awaited[follower] == 0 {
                free.push(Reverse((times[follower], follower)));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads Dynamo's rows. Each has a name, a time and the names of the requests for which it
    /// waits.
    fn read(rows: &[(&str, u64, &[&str])]) -> (Trace, Reader) {
        let (mut trace, mut reader) = (Trace::default(), Reader::default());
        for (name, time, after) in rows {
            let line = format!(
                r#"{{"request_id": "{name}", "timestamp": {time}, "delay": 7, "wait_for": {after:?},
                    "input_length": 8, "output_length": 1, "hash_ids": [1]}}"#
            );
            trace.push_line(&mut reader, line.as_bytes()).expect("a row");
        }
        (trace, reader)
    }

    /// Returns the time in seconds of each request, and the requests for which it waits.
    fn requests(trace: &Trace) -> Vec<(u64, Vec<u32>)> {
        let after = |request: &TraceRequest| request.wait.clone().unwrap_or_default().after;
        let requests = |request: &TraceRequest| {
            let after = after(request).iter().map(|it| it.request).collect();
            (request.arrival.unwrap_or(0) / 1000, after)
        };
        trace.requests().iter().map(requests).collect()
    }

    #[test]
    fn a_request_may_wait_for_one_of_a_later_line() {
        let rows: [(_, _, &[_]); 4] =
            [("c", 9, &["b", "a"]), ("b", 4, &["a"]), ("d", 20, &[]), ("a", 1, &[])];
        let (mut trace, mut reader) = read(&rows);
        assert_eq!(requests(&trace)[..2], [(9, vec![1, 3]), (4, vec![3])]);
        assert_eq!(trace.finish(&mut reader, false), Ok(0));
        let ordered = [(1, vec![]), (4, vec![0]), (9, vec![1, 0]), (20, vec![])];
        assert_eq!(requests(&trace), ordered);
        let refused = trace.push_line(&mut reader, b"{}").expect_err("the reading has ended");
        assert!(refused.message.contains("was already finished"));
    }

    #[test]
    fn lines_that_only_wait_for_earlier_ones_keep_their_order() {
        let (mut trace, mut reader) = read(&[("a", 9, &[]), ("b", 4, &["a"])]);
        assert_eq!(trace.finish(&mut reader, false), Ok(0));
        assert_eq!(requests(&trace), [(9, vec![]), (4, vec![0])]);
    }

    #[test]
    fn a_wait_without_end_is_refused_or_left_out() {
        let (mut trace, mut reader) =
            read(&[("a", 0, &["e"]), ("b", 1, &["a"]), ("c", 2, &[]), ("d", 3, &["c"])]);
        let before = requests(&trace);
        let refused = trace.finish(&mut reader, false).expect_err("no line is e");
        assert_eq!(
            refused.to_string(),
            "field 'wait_for' of request 1 is \"e\", but no line so far has that name"
        );
        assert_eq!((requests(&trace), trace.first_never_arriving()), (before, Some(0)));
        assert_eq!(trace.finish(&mut reader, true), Ok(2));
        assert_eq!(requests(&trace), [(2, vec![]), (3, vec![0])]);
        assert_eq!(trace.first_never_arriving(), None);
    }

    #[test]
    fn a_circle_of_waits_is_refused() {
        let rows: [(_, _, &[_]); 4] =
            [("a", 0, &["b"]), ("b", 1, &["c"]), ("c", 2, &["b"]), ("d", 3, &[])];
        let (mut trace, mut reader) = read(&rows);
        let refused = trace.finish(&mut reader, false).expect_err("b and c");
        assert_eq!(refused.message, "requests wait for each other in a circle: 2, 3");
        assert_eq!(trace.finish(&mut reader, true), Ok(3));
    }

    #[test]
    fn a_trace_may_be_cut_while_requests_wait() {
        let rows: [(_, _, &[_]); 3] = [("c", 0, &["a"]), ("d", 1, &["z"]), ("b", 2, &["c"])];
        let (mut trace, mut reader) = read(&rows);
        trace.truncate(1);
        let line =
            br#"{"request_id": "z", "input_length": 8, "output_length": 1, "hash_ids": [1]}"#;
        trace.push_line(&mut reader, line).expect("a row");
        assert_eq!(trace.finish(&mut reader, true), Ok(1));
        assert_eq!(requests(&trace), [(0, vec![])]);
    }

    #[test]
    fn a_sort_keeps_who_waits_for_whom() {
        let (mut trace, _) = read(&[("a", 9, &[]), ("b", 4, &["a"])]);
        trace.sort_by_arrival();
        assert_eq!(requests(&trace), [(4, vec![1]), (9, vec![])]);
    }
}
