//! Every constant of the adaptive policy. Most constants were measured by changing one of them
//! alone. `docs/lab/retention.md` has the tables, in % of prompt tokens that hit.

/// The number of epochs in which as many blocks become cached as a pool has. With 8, a scan hits up
/// to 2.7 less, and all other traffic stays within 0.9. With 32, most traffic hits 0.2 less.
pub(crate) const EPOCHS_PER_POOL: usize = 16;
/// The number of rounds of the duel of scoring functions in an epoch. Not measured.
pub(crate) const ROUNDS_PER_EPOCH: usize = 4;
/// The minimum number of blocks that become cached in a round: fewer blocks give no result. Not
/// measured.
pub(crate) const MIN_ROUND_LEN: usize = 4;
/// The number of distinct ages, in epochs: four pools' worth.
pub(crate) const AGES: usize = 64;
/// The number of frequency classes: 1 use, 2 to 3, 4 to 7, and 8 or more.
pub(crate) const CLASSES: usize = 4;
/// The uses of a block of each frequency class: the middle of the class. Uses by age are from
/// hyperbolic caching (ATC 2017). Weighted by the reuse in the sample, hits move by -0.4 to +0.2.
pub(crate) const CLASS_USES: [f32; CLASSES] = [1.0, 2.4, 5.3, 12.0];
/// The factor by which the age of the oldest blocks is multiplied, since that age has no end. With
/// a factor of 1, full attention hits 0.06 less, and all other traffic stays within 0.02.
pub(crate) const OLDEST_AGE_FACTOR: usize = 2;
/// The halvings of no value. A value has from 0 to one less.
pub(crate) const VALUE_LEVELS: usize = 7;
/// The share of a full block's value for each number of halvings. Half or twice the value inside a prompt
/// moves hits by less than 0.1.
pub(crate) const VALUE_SHARES: [f32; VALUE_LEVELS] =
    [1.0, 1.0 / 2.0, 1.0 / 4.0, 1.0 / 8.0, 1.0 / 16.0, 1.0 / 32.0, 1.0 / 64.0];
/// The most halvings with which tails are protected and get second chances: half of a full block's
/// value. With a quarter, hits move by 0.1.
pub(crate) const LOWEST_PROTECTED_VALUE: usize = 1;

/// In a small pool, one block in 2^`SAMPLE_BITS` is sampled, as in SHARDS (FAST 2015).
pub(crate) const SAMPLE_BITS: u32 = 4;
/// The pool sizes, in blocks, from which on the density of the sample is halved, and halved again.
/// The reason is that a request's blocks are used together. With half the density everywhere, hits
/// move by -0.6 to +0.4.
pub(crate) const SPARSER_SAMPLES: [usize; 2] = [1 << 17, 1 << 21];
/// The share of a round's difference of hits that remains after one more round: half remains after
/// 4 pools. Not measured alone.
pub(crate) const LEAD_FADE: f32 = 0.9973;
/// The standard deviations by which a scoring function has to be ahead of the one in force to take
/// over. With 2.5, a scan hit up to 4 less in a prototype.
pub(crate) const LEAD_TO_TAKE_OVER: f32 = 1.5;
/// The standard deviations by which the function in force has to stay ahead of recency. With 1, a
/// conversation hit 0.03 to 0.26 less in a prototype, and one pool 0.8 less.
pub(crate) const LEAD_TO_STAY: f32 = 0.5;

/// The share of an observed reuse that remains after an epoch: half remains after 8 pools. Fading
/// is from LHD (NSDI 2018). Not measured alone.
pub(crate) const REUSE_FADE: f32 = 0.9946;
/// The number of observations as which the average of all classes counts in the hazard of a class.
/// Not measured alone.
pub(crate) const AVERAGE_WEIGHT: f32 = 32.0;
/// The number of epochs of age that add one neighbour on each side to the average for an age's
/// hazard.
pub(crate) const EPOCHS_PER_NEIGHBOUR: usize = 16;
/// The likelihood that a block just freed is used again, as a multiple of an average block's,
/// before the first observations.
pub(crate) const PRIOR_START: f32 = 4.0;
/// The number of epochs after which that likelihood has halved.
pub(crate) const PRIOR_DECAY: f32 = 4.0;
/// The number of epochs after which a class without observations gets the average of all classes
/// again.
pub(crate) const EPOCHS_OF_UNSEEN: usize = 4;

/// The distances, in tokens, by which boundaries near the end of a prompt are distinguished. With
/// 256 or 1,024 for the farthest, hits move by -3 to +0.3.
pub(crate) const NEAR_END_BOUNDS: [usize; 3] = [512, 256, 64];
/// The number of assumed requests before the first observations. They resume evenly near the end of
/// prompts. With 32 or 128, agents hit 0.4 or 0.9 less in a small pool, and all other traffic stays
/// within 0.2.
pub(crate) const PRIOR_RESUMES: f64 = 48.0;
/// The number of requests after which the boundaries where tails are kept are computed again.
pub(crate) const RESUMES_PER_UPDATE: u32 = 8;
/// The number of observed requests at which all counts are halved. Not measured.
pub(crate) const MAX_RESUMES: u32 = 1024;
/// Tails are kept where at least this share of an even spread resumes. With a quarter, hits move by
/// -1.0 to +0.4. With all of it, they move by less than 0.1.
pub(crate) const MIN_RESUME_SHARE: f64 = 0.5;
/// A tail's value lasts if its place alone gives it 2^`DURABLE_DOUBLINGS` times a full block's
/// value. If no value lasts, agents hit 2.0 less in a small pool. From 1 or 4 times on, hits move
/// by -0.2 to +0.5.
pub(crate) const DURABLE_DOUBLINGS: i32 = 1;

/// The share of earlier ends that fades with each further end of the same sort. Not measured alone.
pub(crate) const END_FADE: f64 = 1.0 / 1024.0;
/// The number of tokens that a request has to compute for its ends to count in full. With 64, a
/// growing prompt costs others up to 0.9 more. With 256, hits move by -0.4 to +0.5.
pub(crate) const COMPUTED_TOKENS_OF_END: f64 = 128.0;
/// A prompt that adds at most this many tokens to an earlier one counts as a repeat of it. With 64,
/// a change of phase hits 0.1 less or the same. With the alignment of hits, it hits up to 1.2 less
/// on deepseek-v4.
pub(crate) const REPEATED_TOKENS: usize = 16;
/// The number of assumed ends with the value of full blocks before the first observations. Not
/// measured alone.
pub(crate) const PRIOR_ENDS: f64 = 16.0;
/// The exponent of a tail's value if the tail is evicted with its sequence. With 0.5, a growing
/// prompt costs others up to 0.3 more. With 0.667, a scan together with a hot set hits 1 to 2 less.
pub(crate) const SEQUENCE_EXPONENT: f64 = 0.55;
/// The factor for the assumed value of ends when a tail is compared with its whole sequence. With
/// 1, a scan together with a hot set hits up to 6 less, and with 5 up to 0.5 less.
pub(crate) const ASSUMED_AS_SEQUENCE: f64 = 3.0;
/// The lowest value of ends of answers, in halvings, at which their tails are kept while requests
/// run.
pub(crate) const LOWEST_ANSWER_VALUE: usize = 2;
/// The assumed share of blocks used once that are used again, before the first observations.
pub(crate) const PRIOR_REUSE: f64 = 0.25;
/// The number of sampled blocks as which `PRIOR_REUSE` counts. Not measured alone.
pub(crate) const PRIOR_REUSE_WEIGHT: f64 = 64.0;
