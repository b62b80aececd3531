//! The prompt of a request, and its known output tokens.

use serde::{Deserialize, Serialize};

use super::ids::HashIds;

/// A prompt in the form in which the trace has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prompt {
    /// Ids of `w` tokens each. Token `t` is `hash_ids[t / w] * w + t % w`. Therefore equal ids mean
    /// equal tokens at every block size.
    HashIds {
        /// The number of tokens.
        length: usize,
        /// One id per `w` tokens of the prompt, then the ids of the output, if they are known. If
        /// the ids end before the prompt, the rest of the prompt is equal to no other prompt.
        hash_ids: HashIds,
        /// The number of ids that have only output tokens, if the trace knows the output. Then
        /// output tokens in the last block of the prompt have the id of this block.
        num_output_ids: Option<usize>,
    },
    /// The token ids themselves.
    Tokens {
        /// The tokens of the prompt, then the tokens of the output, if they are known.
        tokens: Vec<i64>,
        /// The number of prompt tokens.
        length: usize,
    },
}

impl Prompt {
    /// Returns a prompt of ids with unknown output.
    pub fn of_ids(length: usize, hash_ids: impl IntoIterator<Item = i64>) -> Self {
        Self::HashIds { length, hash_ids: hash_ids.into_iter().collect(), num_output_ids: None }
    }

    /// Returns a prompt of tokens with unknown output.
    pub fn of_tokens(tokens: Vec<i64>) -> Self {
        Self::Tokens { length: tokens.len(), tokens }
    }

    /// Returns the number of prompt tokens.
    pub fn len(&self) -> usize {
        match self {
            Self::HashIds { length, .. } | Self::Tokens { length, .. } => *length,
        }
    }

    /// Returns whether the prompt has no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of ids of the prompt's tokens.
    pub fn num_ids(&self) -> usize {
        match self {
            Self::HashIds { hash_ids, num_output_ids, .. } => {
                hash_ids.len() - num_output_ids.unwrap_or(0)
            }
            Self::Tokens { .. } => 0,
        }
    }

    /// Returns the number of known tokens: the tokens of the prompt and of the output after it.
    pub fn num_known(&self, tokens_per_id: usize) -> usize {
        match self {
            Self::HashIds { length, hash_ids, num_output_ids } => {
                let num_tokens = hash_ids.len() * tokens_per_id;
                if num_output_ids.is_some() { num_tokens } else { num_tokens.min(*length) }
            }
            Self::Tokens { tokens, .. } => tokens.len(),
        }
    }

    /// Returns whether tokens of the output are known.
    pub fn has_output(&self) -> bool {
        match self {
            Self::HashIds { num_output_ids, .. } => num_output_ids.is_some(),
            Self::Tokens { tokens, length } => tokens.len() > *length,
        }
    }

    /// Returns the known token at a position.
    pub fn token(&self, position: usize, tokens_per_id: usize) -> i64 {
        match self {
            Self::HashIds { hash_ids, .. } => {
                let first = hash_ids.at(position / tokens_per_id) * tokens_per_id as i64;
                first + (position % tokens_per_id) as i64
            }
            Self::Tokens { tokens, .. } => tokens[position],
        }
    }

    /// Calls `take` with each of the first `num_tokens` known tokens.
    pub fn each(&self, num_tokens: usize, tokens_per_id: usize, mut take: impl FnMut(i64)) {
        match self {
            Self::Tokens { tokens, .. } => tokens[..num_tokens].iter().copied().for_each(take),
            Self::HashIds { hash_ids, .. } => {
                let mut left = num_tokens;
                for id in hash_ids.iter().take(num_tokens.div_ceil(tokens_per_id)) {
                    let first = id * tokens_per_id as i64;
                    let count = left.min(tokens_per_id);
                    (first..first + count as i64).for_each(&mut take);
                    left -= count;
                }
            }
        }
    }

    /// Returns the first position from `start` on where the tokens differ from another prompt's
    /// tokens; at most `end`.
    pub fn common_end(
        &self,
        other: &Self,
        start: usize,
        end: usize,
        tokens_per_id: usize,
    ) -> usize {
        match (self, other) {
            (Self::HashIds { hash_ids: a, .. }, Self::HashIds { hash_ids: b, .. }) => {
                let first = start / tokens_per_id;
                ((first + a.num_equal(b, first)) * tokens_per_id).clamp(start, end)
            }
            (Self::Tokens { tokens: a, .. }, Self::Tokens { tokens: b, .. }) => {
                let pairs = a[start..end].iter().zip(&b[start..end]);
                start + pairs.take_while(|(a, b)| a == b).count()
            }
            _ => {
                let differ = |&position: &usize| {
                    self.token(position, tokens_per_id) != other.token(position, tokens_per_id)
                };
                (start..end).find(differ).unwrap_or(end)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_behind_the_prompt_are_those_of_the_output() {
        let hash_ids = [4, 5, 9].into_iter().collect();
        let prompt = Prompt::HashIds { length: 6, hash_ids, num_output_ids: Some(1) };
        assert_eq!((prompt.len(), prompt.num_ids(), prompt.num_known(4)), (6, 2, 12));
        let mut tokens = Vec::new();
        prompt.each(10, 4, |token| tokens.push(token));
        assert_eq!(tokens, [16, 17, 18, 19, 20, 21, 22, 23, 36, 37]);
        assert!((0..10).all(|position| prompt.token(position, 4) == tokens[position]));
        assert_eq!(Prompt::of_ids(6, [4, 5]).num_known(4), 6);
    }
}
