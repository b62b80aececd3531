//! Scores of instances for a request.

use std::collections::BTreeMap;

use kvoxide_core::Error;

use super::Candidate;

/// A routing rule with its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Routing {
    /// Chooses the instances in turn.
    RoundRobin,
    /// Chooses the instance with the fewest requests. In a pool that is more than half full, each
    /// waiting request counts as `pressure * (usage - 0.5)` more requests. vLLM does this for
    /// data-parallel engines.
    LeastLoaded {
        /// The weight of waiting requests.
        pressure: f64,
    },
    /// Chooses the same instance for all requests of a conversation, by a hash.
    Session,
    /// Chooses the recorded instance.
    Recorded,
    /// Chooses the lowest `overlap * prefill + decode`. `prefill` is the number of prompt tokens
    /// that the instance has to compute, including the tokens of this request without its hit.
    /// `decode` is the number of tokens of all its requests.
    ///
    /// This is the cost function of NVIDIA Dynamo's KV router, in tokens instead of blocks.
    Prefix {
        /// The router's `overlap_score_weight`.
        overlap: f64,
    },
    /// Chooses the highest sum of weighted scores, as llm-d and the Gateway API Inference Extension
    /// do. Three scores, each from 0 to 1, are added: the cached share of the prompt, the shortness
    /// of the queue among all instances, and the unused share of the pool.
    Scored {
        /// The weight of the cached share.
        prefix: f64,
        /// The weight of the queue.
        queue: f64,
        /// The weight of the pool.
        cache: f64,
    },
}

/// The usage of a pool from which waiting requests count for more.
const HALF: f64 = 0.5;

/// All routing rules, with their default weights.
const ROUTINGS: [Routing; 6] = [
    Routing::RoundRobin,
    Routing::LeastLoaded { pressure: 6.0 },
    Routing::Session,
    Routing::Recorded,
    Routing::Prefix { overlap: 1.0 },
    Routing::Scored { prefix: 3.0, queue: 2.0, cache: 2.0 },
];

impl Routing {
    /// Returns the rule with this name and the given weights. Fails for an unknown name or weight.
    pub fn named(name: &str, given: BTreeMap<String, f64>) -> Result<Self, Error> {
        let Some(mut routing) = ROUTINGS.into_iter().find(|routing| routing.name() == name) else {
            let known: Vec<_> = ROUTINGS.iter().map(Self::name).collect();
            let message = format!("unknown router '{name}'; it can be {}", known.join(", "));
            return Err(Error::Config(message));
        };
        for (weight, value) in given {
            match routing.weights_mut().into_iter().find(|(known, _)| *known == weight) {
                Some((_, place)) => *place = value,
                None => {
                    let known: Vec<_> = routing.weights().iter().map(|(name, _)| *name).collect();
                    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                    let message = format!("the router '{name}' has no '{weight}'; it has {known}");
                    return Err(Error::Config(message));
                }
            }
        }
        routing.check()?;
        Ok(routing)
    }

    /// Returns the rule's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::LeastLoaded { .. } => "least-loaded",
            Self::Session => "session",
            Self::Recorded => "recorded",
            Self::Prefix { .. } => "prefix",
            Self::Scored { .. } => "scored",
        }
    }

    /// Returns the rule's weights by name.
    pub fn weights(&self) -> Vec<(&'static str, f64)> {
        let mut routing = *self;
        routing.weights_mut().into_iter().map(|(name, weight)| (name, *weight)).collect()
    }

    fn weights_mut(&mut self) -> Vec<(&'static str, &mut f64)> {
        match self {
            Self::RoundRobin | Self::Session | Self::Recorded => vec![],
            Self::LeastLoaded { pressure } => vec![("pressure", pressure)],
            Self::Prefix { overlap } => vec![("overlap", overlap)],
            Self::Scored { prefix, queue, cache } => {
                vec![("prefix", prefix), ("queue", queue), ("cache", cache)]
            }
        }
    }

    /// Checks that the weights are finite and at least 0.
    pub fn check(&self) -> Result<(), Error> {
        let weights = self.weights();
        match weights.iter().find(|(_, weight)| !(weight.is_finite() && *weight >= 0.0)) {
            None => Ok(()),
            Some((name, weight)) => {
                let router = self.name();
                let message =
                    format!("the router '{router}': {name} is {weight}; it can be 0 or more");
                Err(Error::Config(message))
            }
        }
    }

    /// Returns a score per instance for a request. The highest score is best.
    pub(crate) fn scores(&self, num_prompt_tokens: usize, candidates: &[Candidate]) -> Vec<f64> {
        match *self {
            Self::RoundRobin | Self::Session | Self::Recorded => vec![0.0; candidates.len()],
            Self::LeastLoaded { pressure } => each(candidates, |Candidate { load, .. }| {
                let crowding = pressure * (load.usage - HALF).max(0.0);
                -((load.waiting + load.running) as f64 + crowding * load.waiting as f64)
            }),
            Self::Prefix { overlap } => each(candidates, |Candidate { load, hit }| {
                let prefill = load.prefill_tokens + num_prompt_tokens - hit;
                let decode = load.active_tokens + num_prompt_tokens;
                -(overlap * prefill as f64 + decode as f64)
            }),
            Self::Scored { prefix, queue, cache } => {
                let shortness = shortness_of_queues(candidates);
                let scores = candidates.iter().zip(shortness).map(|(candidate, shortness)| {
                    let cached = candidate.hit as f64 / num_prompt_tokens.max(1) as f64;
                    prefix * cached + queue * shortness + cache * (1.0 - candidate.load.usage)
                });
                scores.collect()
            }
        }
    }
}

fn each(candidates: &[Candidate], score: impl Fn(&Candidate) -> f64) -> Vec<f64> {
    candidates.iter().map(score).collect()
}

/// Returns the shortness of each queue: 1 for the shortest queue and 0 for the longest. If all are
/// equal, it is 1 for all.
fn shortness_of_queues(candidates: &[Candidate]) -> Vec<f64> {
    let waiting = || candidates.iter().map(|candidate| candidate.load.waiting);
    let (least, most) = (waiting().min().unwrap_or(0), waiting().max().unwrap_or(0));
    let shortness = |waiting: usize| match most - least {
        0 => 1.0,
        range => (most - waiting) as f64 / range as f64,
    };
    waiting().map(shortness).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::Load;

    fn candidate(waiting: usize, running: usize, hit: usize) -> Candidate {
        Candidate { load: Load { waiting, running, ..Load::default() }, hit }
    }

    #[test]
    fn requests_that_wait_count_for_more_where_the_pool_is_full() {
        let mut candidates = [candidate(2, 1, 0), candidate(2, 1, 0), candidate(0, 5, 0)];
        candidates[0].load.usage = 1.0;
        candidates[1].load.usage = 0.5;
        let scores = Routing::LeastLoaded { pressure: 6.0 }.scores(10, &candidates);
        assert_eq!(scores, [-9.0, -3.0, -5.0]);
    }

    #[test]
    fn a_hit_is_weighed_against_load() {
        // These are the numbers of the example in Dynamo's documentation, in tokens instead of
        // blocks of one token. The prompt has 10 tokens, of them 2, 5 and 8 cached. 0, 5 and 9 - 10
        // tokens are active elsewhere.
        let with = |active_tokens: usize, hit: usize| Candidate {
            load: Load { active_tokens, ..Load::default() },
            hit,
        };
        let candidates = [with(10, 2), with(5, 5), with(9, 8)];
        let costs = |overlap: f64| Routing::Prefix { overlap }.scores(10, &candidates);
        assert_eq!(costs(1.0), [-28.0, -20.0, -21.0], "the second is best");
        assert_eq!(costs(2.0), [-36.0, -25.0, -23.0], "the third is best");
    }

    #[test]
    fn scores_are_weighted_sums() {
        let mut candidates = [candidate(0, 0, 0), candidate(2, 0, 8), candidate(1, 0, 4)];
        candidates[0].load.usage = 0.5;
        let scores = Routing::Scored { prefix: 3.0, queue: 2.0, cache: 2.0 }.scores(8, &candidates);
        assert_eq!(scores, [0.0 + 2.0 + 1.0, 3.0 + 0.0 + 2.0, 1.5 + 1.0 + 2.0]);
    }

    fn named(name: &str, weight: &str, value: f64) -> Result<Routing, String> {
        let weights = [(weight.to_owned(), value)].into_iter().collect();
        Routing::named(name, weights).map_err(|error| error.to_string())
    }

    #[test]
    fn weights_are_given_by_name() {
        let given = named("scored", "queue", 0.5);
        assert_eq!(given, Ok(Routing::Scored { prefix: 3.0, queue: 0.5, cache: 2.0 }));
        let refused = |name, weight, value| named(name, weight, value).expect_err("refused");
        assert!(refused("scored", "queue", -1.0).contains("queue is -1; it can be 0 or more"));
        assert!(refused("prefix", "overlap", f64::INFINITY).contains("overlap is inf"));
        assert!(refused("prefix", "load", 1.0).contains("has no 'load'; it has overlap"));
        assert!(refused("session", "load", 1.0).contains("it has none"));
        assert!(refused("fastest", "load", 1.0).contains("it can be round-robin, least-loaded,"));
    }
}
