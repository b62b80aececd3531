//! Every constant of the adaptive policy. What a constant is worth was measured by changing it alone;
//! `docs/lab/retention.md` has the tables, in % of prompt tokens that hit.

/// Epochs in which as many blocks become cached as a pool has. With 8, a scan hits up to 2.7 less
/// and all else within 0.9; with 32, most hit 0.2 less.
pub(crate) const EPOCHS_PER_POOL: usize = 16;
/// Rounds of the duel of scoring functions in an epoch. Not measured.
pub(crate) const ROUNDS_PER_EPOCH: usize = 4;
/// Blocks that become cached in a round, at least: fewer show nothing. Not measured.
pub(crate) const MIN_ROUND_LEN: usize = 4;
/// Ages that are told apart, in epochs: four pools' worth.
pub(crate) const AGES: usize = 64;
/// Frequency classes: 1 use, 2 to 3, 4 to 7, 8 and more.
pub(crate) const CLASSES: usize = 4;
/// Uses of a block of each frequency class: the middle of the class. Uses by age are those of
/// hyperbolic caching (ATC 2017). Weighted by the reuse that the sample saw, hits move by -0.4 to
/// +0.2.
pub(crate) const CLASS_USES: [f32; CLASSES] = [1.0, 2.4, 5.3, 12.0];
/// Blocks of the oldest age count as so many times as old, since that age has no end. Counted once,
/// full attention hits 0.06 less, and all else within 0.02.
pub(crate) const OLDEST_AGE_FACTOR: usize = 2;
/// Levels of value, each half of the one before.
pub(crate) const VALUE_LEVELS: usize = 7;
/// The share of a full block's value at each value level. Half or twice the value inside a prompt
/// moves hits by less than 0.1.
pub(crate) const VALUE_SHARES: [f32; VALUE_LEVELS] =
    [1.0, 1.0 / 2.0, 1.0 / 4.0, 1.0 / 8.0, 1.0 / 16.0, 1.0 / 32.0, 1.0 / 64.0];
/// The value level up to which tails are protected and get second chances: half of a full block's
/// value. A quarter moves hits by 0.1.
pub(crate) const LOWEST_PROTECTED_VALUE: usize = 1;

/// One block in two to this power is sampled in a small pool, as in SHARDS (FAST 2015).
pub(crate) const SAMPLE_BITS: u32 = 4;
/// Pools of so many blocks are sampled half as densely, and half of that, since a request's blocks
/// are used together. Half as densely everywhere, hits move by -0.6 to +0.4.
pub(crate) const SPARSER_SAMPLES: [usize; 2] = [1 << 17, 1 << 21];
/// What is left of a round's difference of hits after a round: half after 4 pools. Not measured alone.
pub(crate) const LEAD_FADE: f32 = 0.9973;
/// Standard deviations by which a scoring function has to be ahead of the one in force to take over.
/// With 2.5, a scan hit up to 4 less in a prototype.
pub(crate) const LEAD_TO_TAKE_OVER: f32 = 1.5;
/// Standard deviations by which the one in force has to stay ahead of recency. With 1, a conversation
/// hit 0.03 to 0.26 less in a prototype, and one pool 0.8 less.
pub(crate) const LEAD_TO_STAY: f32 = 0.5;

/// What is left of an observed reuse after an epoch: half after 8 pools. Fading is LHD's (NSDI 2018).
/// Not measured alone.
pub(crate) const REUSE_FADE: f32 = 0.9946;
/// The average of all classes counts in the hazard of a class as so many observations do. Not measured
/// alone.
pub(crate) const AVERAGE_WEIGHT: f32 = 32.0;
/// The hazard of an age is averaged over one neighbour on each side for each so many epochs.
pub(crate) const EPOCHS_PER_NEIGHBOUR: usize = 16;
/// Before anything was seen, blocks just freed are so many times as likely to be used again as an
/// average block.
pub(crate) const PRIOR_START: f32 = 4.0;
/// Epochs after which that likelihood has halved.
pub(crate) const PRIOR_DECAY: f32 = 4.0;
/// A class without observations gets the average of all classes every so many epochs.
pub(crate) const EPOCHS_OF_UNSEEN: usize = 4;

/// Boundaries near the end of a prompt are told apart by these distances, in tokens. With 256 or 1,024
/// for the farthest, hits move by -3 to +0.3.
pub(crate) const NEAR_END_BOUNDS: [usize; 3] = [512, 256, 64];
/// Requests, resuming evenly near the end of prompts, that count as seen before any was. With 32 or
/// 128, agents hit 0.4 or 0.9 less in a small pool, and all else within 0.2.
pub(crate) const PRIOR_RESUMES: f64 = 48.0;
/// Requests after which it is computed again at which boundaries tails are kept.
pub(crate) const RESUMES_PER_UPDATE: u32 = 8;
/// When so many requests were seen, all counts are halved. Not measured.
pub(crate) const MAX_RESUMES: u32 = 1024;
/// Tails are kept where at least this share of an even spread resumes. With a quarter, hits move by
/// -1.0 to +0.4; with all of it, by less than 0.1.
pub(crate) const MIN_RESUME_SHARE: f64 = 0.5;
/// A tail lasts that has two to this power times a full block's value by its place alone. If none does,
/// agents hit 2.0 less in a small pool; from 1 or 4 times on, hits move by -0.2 to +0.5.
pub(crate) const DURABLE_DOUBLINGS: i32 = 1;

/// The part of earlier ends that fades with another one of their sort. Not measured alone.
pub(crate) const END_FADE: f64 = 1.0 / 1024.0;
/// Tokens that a request computes from which on its ends count in full. With 64, a growing prompt
/// costs others up to 0.9 more; with 256, hits move by -0.4 to +0.5.
pub(crate) const COMPUTED_TOKENS_OF_END: f64 = 128.0;
/// A prompt that ends at most so many tokens behind where its request resumes is an earlier one
/// once more. With 64, a change of phase hits 0.1 less or the same; with the alignment of hits, it hits
/// up to 1.2 less on deepseek-v4.
pub(crate) const REPEATED_TOKENS: usize = 16;
/// Ends with the value of full blocks that count as seen before any was. Not measured alone.
pub(crate) const PRIOR_ENDS: f64 = 16.0;
/// The power that a tail's value is raised to if the tail goes with its sequence. With 0.5, a growing
/// prompt costs others up to 0.3 more; with 0.667, a scan beside a hot set hits 1 to 2 less.
pub(crate) const SEQUENCE_EXPONENT: f64 = 0.55;
/// The assumed value of ends counts so many times where a tail is compared with its whole sequence.
/// Counted once, a scan beside a hot set hits up to 6 less, and with 5 up to 0.5 less.
pub(crate) const ASSUMED_AS_SEQUENCE: f64 = 3.0;
/// The lowest value of ends of answers, in halvings, for which their tails are kept while requests run.
pub(crate) const LOWEST_ANSWER_VALUE: usize = 2;
/// The share of once used blocks that are used again, before any was seen.
pub(crate) const PRIOR_REUSE: f64 = 0.25;
/// The number of sampled blocks as which `PRIOR_REUSE` counts. Not measured alone.
pub(crate) const PRIOR_REUSE_WEIGHT: f64 = 64.0;
