//! Finds the outputs of requests in the prompts of their follow-ups.
//!
//! A follow-up is a later request of the same conversation. Its prompt begins with all whole ids of
//! an earlier prompt, and is long enough for that prompt's output. It is assumed to contain both
//! the prompt and the output.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::ids::HashIds;
use super::prompt::Prompt;
use super::request::TraceRequest;

/// The outputs that follow-ups contain.
pub struct Answers<'a> {
    requests: &'a [TraceRequest],
    width: usize,
    /// The first follow-up of each request.
    follow_ups: Vec<Option<usize>>,
    beginnings: Beginnings,
}

impl<'a> Answers<'a> {
    /// Finds the outputs of requests. Each id represents `width` tokens.
    pub fn find(requests: &'a [TraceRequest], width: usize) -> Self {
        let beginnings = Beginnings { width, shared: HashMap::new() };
        let follow_ups = vec![None; requests.len()];
        let mut answers = Self { requests, width, follow_ups, beginnings };
        let mut conversations = Conversations::default();
        for (index, request) in requests.iter().enumerate() {
            let Some(conversation) = request.conversation else { continue };
            let hashes = prefix_hashes(&request.prompt, width);
            let earlier = conversation.continues.unwrap_or(conversation.id);
            conversations.candidates(earlier, &hashes).find(|&first| answers.connect(first, index));
            conversations.add(conversation.id, &hashes, request, index, width);
        }
        answers
    }

    /// Returns the number of requests whose output was found.
    pub fn num_found(&self) -> usize {
        self.follow_ups.iter().flatten().count()
    }

    /// Returns the prompt of a request and its output, if the output was found, with an id per
    /// token. The last token of the output is left out, because a server never computes it.
    pub fn prompt(&self, index: usize) -> Prompt {
        let request = &self.requests[index];
        let follow_up = self.follow_ups[index].map(|follow_up| &self.requests[follow_up].prompt);
        let length = request.prompt.len();
        let output = length..length + request.output_length.saturating_sub(1);
        match &request.prompt {
            Prompt::Tokens { tokens, .. } => {
                let output = follow_up.into_iter().flat_map(|prompt| slice(prompt, output.clone()));
                Prompt::Tokens { tokens: tokens.iter().chain(output).copied().collect(), length }
            }
            Prompt::HashIds { hash_ids, .. } => {
                let mut runs = Vec::new();
                let num_known = length.min(hash_ids.len() * self.width);
                self.beginnings.tokens(hash_ids, 0..num_known, &mut runs);
                if let Some(Prompt::HashIds { hash_ids, .. }) = follow_up {
                    // If the ids cover whole blocks only, they end before the prompt, and the ids
                    // of the follow-up continue.
                    self.beginnings.tokens(hash_ids, num_known..output.end, &mut runs);
                }
                let hash_ids = HashIds::of_runs(runs);
                let num_behind = hash_ids.len().saturating_sub(length);
                let num_output_ids = follow_up.is_some().then_some(num_behind);
                Prompt::HashIds { length, hash_ids, num_output_ids }
            }
        }
    }

    /// Connects a request with a follow-up. Returns whether the later request can be its follow-up.
    fn connect(&mut self, earlier: usize, follow_up: usize) -> bool {
        let [first, second] = [earlier, follow_up].map(|index| &self.requests[index]);
        let (length, width) = (first.prompt.len(), self.width);
        let end = length + first.output_length;
        if second.prompt.len() < end.max(length + 1)
            || !has_equal(&first.prompt, &second.prompt, 0..length, width)
        {
            return false;
        }
        if let Some(before) = self.follow_ups[earlier] {
            let before = &self.requests[before].prompt;
            if !has_equal(before, &second.prompt, length..end, width) {
                return false;
            }
            self.beginnings.share(before, &second.prompt, end);
        } else {
            self.beginnings.share(&first.prompt, &second.prompt, length);
            self.follow_ups[earlier] = Some(follow_up);
        }
        true
    }
}

/// Returns whether two prompts have equal whole ids, or equal tokens, in a range of positions.
fn has_equal(a: &Prompt, b: &Prompt, range: Range<usize>, width: usize) -> bool {
    match (a, b) {
        (Prompt::HashIds { hash_ids: a, .. }, Prompt::HashIds { hash_ids: b, .. }) => {
            let (first, end) = (range.start / width, range.end / width);
            first + a.num_equal(b, first) >= end
        }
        (Prompt::Tokens { .. }, Prompt::Tokens { .. }) => {
            slice(a, range.clone()) == slice(b, range)
        }
        _ => false,
    }
}

fn slice(prompt: &Prompt, range: Range<usize>) -> &[i64] {
    match prompt {
        Prompt::Tokens { tokens, .. } => &tokens[range],
        Prompt::HashIds { .. } => &[],
    }
}

/// Returns the hashes of the prefixes of a prompt that consist of whole ids, or of tokens. The
/// first hash covers one id.
fn prefix_hashes(prompt: &Prompt, width: usize) -> Vec<u64> {
    let chain = |hash: &mut u64, id: i64| {
        *hash = xxh3_64_with_seed(&id.to_le_bytes(), *hash);
        Some(*hash)
    };
    match prompt {
        Prompt::Tokens { tokens, .. } => tokens.iter().copied().scan(1, chain).collect(),
        Prompt::HashIds { length, hash_ids, .. } => {
            hash_ids.iter().take(length / width).scan(0, chain).collect()
        }
    }
}

/// The earlier requests, by conversation and prompt.
#[derive(Default)]
struct Conversations {
    /// The latest request of each length, by conversation, number of whole ids and the hash of
    /// these ids.
    requests: HashMap<(u64, usize, u64), BTreeMap<usize, usize>>,
}

impl Conversations {
    /// Returns the requests of a conversation that can be the beginning of a prompt with these
    /// hashes, the longest first.
    fn candidates(&self, conversation: u64, hashes: &[u64]) -> impl Iterator<Item = usize> {
        let lengths =
            hashes.iter().enumerate().rev().filter_map(move |(index, &hash)| {
                self.requests.get(&(conversation, index + 1, hash))
            });
        lengths.flat_map(|by_length| by_length.values().rev().copied())
    }

    fn add(
        &mut self,
        conversation: u64,
        hashes: &[u64],
        request: &TraceRequest,
        index: usize,
        width: usize,
    ) {
        let length = request.prompt.len();
        let num_whole = match request.prompt {
            Prompt::Tokens { .. } => length,
            Prompt::HashIds { .. } => length / width,
        };
        let Some(&hash) = num_whole.checked_sub(1).and_then(|last| hashes.get(last)) else {
            return;
        };
        self.requests.entry((conversation, num_whole, hash)).or_default().insert(length, index);
    }
}

/// Ids whose first tokens are equal to tokens of other ids, since a prompt ended within them.
struct Beginnings {
    width: usize,
    shared: HashMap<i64, Shared>,
}

/// The first tokens of an id, as tokens of other ids.
struct Shared {
    length: usize,
    runs: Vec<Range<i64>>,
}

impl Beginnings {
    /// Records that two prompts have equal tokens up to `end`, including the first tokens of the id
    /// that contains `end`.
    fn share(&mut self, a: &Prompt, b: &Prompt, end: usize) {
        let length = end % self.width;
        let (Prompt::HashIds { hash_ids: a, .. }, Prompt::HashIds { hash_ids: b, .. }) = (a, b)
        else {
            return;
        };
        let place = end / self.width;
        if length == 0 || place >= a.len().min(b.len()) {
            return;
        }
        let [a, b] = [a, b].map(|ids| ids.at(place));
        let has_shared = |id: i64| self.shared.get(&id).is_some_and(|with| with.length >= length);
        let (from, to) = if has_shared(b) { (b, a) } else { (a, b) };
        if from != to && !has_shared(to) {
            let mut runs = Vec::new();
            self.tokens_of_id(from, 0..length, &mut runs);
            runs.retain(|run| !run.is_empty());
            self.shared.insert(to, Shared { length, runs });
        }
    }

    /// Appends the tokens in a range of positions.
    fn tokens(&self, ids: &HashIds, range: Range<usize>, runs: &mut Vec<Range<i64>>) {
        let width = self.width;
        let places = range.start / width..range.end.div_ceil(width);
        for (place, id) in places.clone().zip(ids.iter_from(places.start)) {
            let within = |position: usize| position.saturating_sub(place * width).min(width);
            self.tokens_of_id(id, within(range.start)..within(range.end), runs);
        }
    }

    /// Appends tokens of an id.
    fn tokens_of_id(&self, id: i64, range: Range<usize>, runs: &mut Vec<Range<i64>>) {
        let mut start = range.start;
        if let Some(shared) = self.shared.get(&id) {
            let mut at = 0;
            for run in &shared.runs {
                let length = (run.end - run.start) as usize;
                let within = |position: usize| position.clamp(at, at + length) - at;
                let (first, end) = (within(range.start) as i64, within(range.end) as i64);
                runs.push(run.start + first..run.start + end);
                at += length;
            }
            start = start.max(shared.length.min(range.end));
        }
        let first = id * self.width as i64;
        runs.push(first + start as i64..first + range.end as i64);
    }
}
