//! Measures the calls of a host tier for the chunks of a long prompt.

use kvoxide_core::host::{HostPolicy, HostRequest, HostTier, HostTierConfig, PositionedKey};
use kvoxide_core::{CacheKey, Result};

use crate::{CHUNK, LONG, counted, hash, require};

pub(crate) type Operation = fn(&mut Tier) -> Result<()>;

pub(crate) const OPERATIONS: [(&str, Operation); 5] = [
    ("look-up", look_up),
    ("load", load),
    ("load-ends", load_ends),
    ("offer", offer),
    ("end", end),
];

/// Tokens of a chunk.
const SIZE: usize = 16;
/// The number of chunks of a tier. Two long prompts do not fit.
const NUM_CHUNKS: usize = LONG / SIZE + LONG / SIZE / 4;

fn look_up(tier: &mut Tier) -> Result<()> {
    let prompt = tier.store(0, false)?;
    let found = counted(|| tier.host.lookup_prefix(keys(&prompt)));
    require(found == Some(prompt.len()));
    Ok(())
}

fn load(tier: &mut Tier) -> Result<()> {
    let prompt = tier.store(0, false)?;
    let mut request = HostRequest::default();
    counted(|| tier.host.prepare_load(&mut request, prompt.iter().copied())).map(drop)
}

fn load_ends(tier: &mut Tier) -> Result<()> {
    let prompt = tier.store(0, false)?;
    tier.host.prepare_load(&mut HostRequest::default(), prompt.iter().copied())?;
    counted(|| tier.host.complete_load(keys(&prompt)))
}

fn offer(tier: &mut Tier) -> Result<()> {
    for prompt in 0..3 {
        tier.store(prompt, false)?;
    }
    tier.store(3, true).map(drop)
}

fn end(tier: &mut Tier) -> Result<()> {
    let prompt = tier.store(0, false)?;
    let mut request = HostRequest::default();
    tier.host.prepare_load(&mut request, prompt.iter().copied())?;
    counted(|| tier.host.finish_request(&mut request, []));
    Ok(())
}

/// A host tier, on which the operations run.
pub(crate) struct Tier {
    host: HostTier,
}

impl Tier {
    pub(crate) fn new(policy: HostPolicy) -> Result<Self> {
        Ok(Self { host: HostTier::new(&HostTierConfig::new(NUM_CHUNKS, policy))? })
    }

    /// Offers a long prompt step by step, and ends its request. Returns the prompt's keys.
    fn store(&mut self, prompt: u64, is_counted: bool) -> Result<Vec<PositionedKey>> {
        let key = |at: u64| CacheKey { hash: hash(prompt, at), group: 0 };
        let positions = (SIZE..=LONG).step_by(SIZE).map(|end| Some(end as u32));
        let prompt: Vec<_> = (0..).map(key).zip(positions).collect();
        let mut request = HostRequest::default();
        for offered in prompt.chunks(CHUNK / SIZE) {
            let mut offer =
                || self.host.prepare_store_of_distinct(&mut request, offered.iter().copied());
            let plan = if is_counted { counted(offer)? } else { offer()? };
            require(plan.is_some_and(|plan| plan.chunks.len() == offered.len()));
            self.host.complete_store(keys(offered), true);
        }
        self.host.finish_request(&mut request, []);
        Ok(prompt)
    }
}

fn keys(placed: &[PositionedKey]) -> impl Iterator<Item = CacheKey> + '_ {
    placed.iter().map(|&(key, _)| key)
}
