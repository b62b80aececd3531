//! Every constant of the adaptive policy. What a constant is worth was measured by changing it alone;
//! `docs/lab/retention.md` has the tables, in % of prompt tokens that hit.

/// The constants. `TUNING` has those in force.
pub(crate) struct Tuning {
    /// Epochs in which as many blocks become cached as a pool has. With 8, a scan hits up to 2.7
    /// less and all else within 0.9; with 32, most hit 0.2 less.
    pub(crate) epochs_per_pool: usize,
    /// Rounds of the duel of scoring functions in an epoch. Not measured.
    pub(crate) rounds_per_epoch: usize,
    /// Blocks that become cached in a round, at least: fewer show nothing. Not measured.
    pub(crate) min_round_len: usize,
    /// Uses of a block of each frequency class: the middle of the class. Uses by age are those of
    /// hyperbolic caching (ATC 2017). Weighted by the reuse that the sample saw, hits move by -0.4 to
    /// +0.2.
    pub(crate) class_uses: [f32; Tuning::CLASSES],
    /// Blocks of the oldest age count as so many times as old, since that age has no end. Counted
    /// once, full attention hits 0.06 less, and all else within 0.02.
    pub(crate) oldest_age_factor: usize,
    /// The share of a full block's value at each value level. Half or twice the value inside a prompt
    /// moves hits by less than 0.1.
    pub(crate) value_shares: [f32; Tuning::VALUE_LEVELS],

    /// One block in two to this power is sampled in a small pool, as in SHARDS (FAST 2015).
    pub(crate) sample_bits: u32,
    /// Pools of so many blocks are sampled half as densely, and half of that, since a request's
    /// blocks are used together. Half as densely everywhere, hits move by -0.6 to +0.4.
    pub(crate) sparser_samples: [usize; 2],
    /// What is left of a round's difference of hits after a round: half after 4 pools. Not measured
    /// alone.
    pub(crate) lead_fade: f32,
    /// Standard deviations by which a scoring function has to be ahead of the one in force to take
    /// over. With 2.5, a scan hit up to 4 less in a prototype.
    pub(crate) lead_to_take_over: f32,
    /// Standard deviations by which the one in force has to stay ahead of recency. With 1, a
    /// conversation hit 0.03 to 0.26 less in a prototype, and one pool 0.8 less.
    pub(crate) lead_to_stay: f32,

    /// What is left of an observed reuse after an epoch: half after 8 pools. Fading is LHD's (NSDI
    /// 2018). Not measured alone.
    pub(crate) reuse_fade: f32,
    /// Observations for which the average of all classes counts in the hazard of a class. Not
    /// measured alone.
    pub(crate) average_weight: f32,
    /// Before anything was seen, blocks just freed are so many times as likely to be used again as
    /// an average block, and half as likely after `prior_decay` epochs.
    pub(crate) prior_start: f32,
    /// See `prior_start`.
    pub(crate) prior_decay: f32,
    /// A class without observations gets the average of all classes every so many epochs.
    pub(crate) epochs_of_unseen: usize,

    /// Boundaries near the end of a prompt are told apart by these distances, in tokens. With 256 or
    /// 1,024 for the farthest, hits move by -3 to +0.3.
    pub(crate) near_end_bounds: [usize; Tuning::NEAR_END_STEPS],
    /// Requests, resuming evenly near the end of prompts, that count as seen before any was. With 32
    /// or 128, agents hit 0.4 or 0.9 less in a small pool, and all else within 0.2.
    pub(crate) prior_resumes: f64,
    /// Requests after which it is computed again at which boundaries tails are kept.
    pub(crate) resumes_per_update: u32,
    /// When so many requests were seen, all counts are halved. Not measured.
    pub(crate) max_resumes: u32,
    /// Tails are kept where at least this share of an even spread resumes. With a quarter, hits move
    /// by -1.0 to +0.4; with all of it, by less than 0.1.
    pub(crate) min_resume_share: f64,
    /// A tail lasts that has two to this power times a full block's value by its place alone. If none
    /// does, agents hit 2.0 less in a small pool; from 1 or 4 times on, hits move by -0.2 to +0.5.
    pub(crate) lasting_doublings: i32,

    /// What is left of an end after another one of its sort. Not measured alone.
    pub(crate) end_fade: f64,
    /// Ends with the value of full blocks that count as seen before any was. Not measured alone.
    pub(crate) prior_ends: f64,
    /// The lowest value of ends of answers, in halvings, for which their tails are kept while
    /// requests run.
    pub(crate) lowest_answer_value: usize,
    /// The share of once used blocks that are used again, before any was seen.
    pub(crate) prior_reuse: f64,
    /// Sampled blocks for which that share counts. Not measured alone.
    pub(crate) prior_reuse_weight: f64,
}

impl Tuning {
    /// Ages that are told apart, in epochs: four pools' worth.
    pub(crate) const AGES: usize = 64;
    /// Frequency classes: 1 use, 2 to 3, 4 to 7, 8 and more.
    pub(crate) const CLASSES: usize = 4;
    /// Levels of value, each half of the one before.
    pub(crate) const VALUE_LEVELS: usize = 7;
    /// The value level up to which tails are protected and get second chances: half of a full
    /// block's value. A quarter moves hits by 0.1.
    pub(crate) const LOWEST_PROTECTED_VALUE: usize = 1;
    /// The hazard of an age is averaged over one neighbour on each side for each so many epochs.
    pub(crate) const EPOCHS_PER_NEIGHBOUR: usize = 16;
    /// Distances from the end of a prompt that are told apart.
    pub(crate) const NEAR_END_STEPS: usize = 3;
}

/// The constants in force.
pub(crate) const TUNING: Tuning = Tuning {
    epochs_per_pool: 16,
    rounds_per_epoch: 4,
    min_round_len: 4,
    class_uses: [1.0, 2.4, 5.3, 12.0],
    oldest_age_factor: 2,
    value_shares: [1.0, 1.0 / 2.0, 1.0 / 4.0, 1.0 / 8.0, 1.0 / 16.0, 1.0 / 32.0, 1.0 / 64.0],

    sample_bits: 4,
    sparser_samples: [1 << 17, 1 << 21],
    lead_fade: 0.9973,
    lead_to_take_over: 1.5,
    lead_to_stay: 0.5,

    reuse_fade: 0.9946,
    average_weight: 32.0,
    prior_start: 4.0,
    prior_decay: 4.0,
    epochs_of_unseen: 4,

    near_end_bounds: [512, 256, 64],
    prior_resumes: 48.0,
    resumes_per_update: 8,
    max_resumes: 1024,
    min_resume_share: 0.5,
    lasting_doublings: 1,

    end_fade: 1.0 - 1.0 / 1024.0,
    prior_ends: 16.0,
    lowest_answer_value: 2,
    prior_reuse: 0.25,
    prior_reuse_weight: 64.0,
};
