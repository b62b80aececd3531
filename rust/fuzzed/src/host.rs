//! Makes arbitrary calls of the host tier and of the naive tier in the core's tests. After each
//! call, both have the same answers and the same state. A refused call changes nothing.

#[path = "../../core/tests/oracle/host/model.rs"]
mod model;
#[path = "../../core/tests/oracle/host/world.rs"]
mod world;

use arbitrary::{Arbitrary, Result, Unstructured};
use kvoxide_core::host::{HostPolicy, HostTierConfig, VllmVersion};

use world::{NUM_REQUESTS, Step, World};

const MAX_CALLS: usize = 200;

/// Makes the calls that `data` describes.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok((config, unknown)) = config(&mut input) else { return };
    let mut world = World::new(config, unknown);
    for _ in 0..MAX_CALLS {
        match step(&mut input) {
            Ok(step) if !input.is_empty() => world.play(&step),
            _ => return,
        }
    }
}

/// Returns the settings of a tier, and a number: positions that are divisible by it are unknown.
fn config(input: &mut Unstructured<'_>) -> Result<(HostTierConfig, usize)> {
    let policy = *input.choose(&[HostPolicy::Lru, HostPolicy::Arc])?;
    let config = HostTierConfig {
        release: *input.choose(&[VllmVersion::V0_33, VllmVersion::V0_32])?,
        store_threshold: input.int_in_range(0..=3)?,
        max_tracker_size: input.int_in_range(0..=20)?,
        ..HostTierConfig::new(input.int_in_range(0..=60)?, policy)
    };
    Ok((config, input.int_in_range(0..=4)?))
}

fn step(input: &mut Unstructured<'_>) -> Result<Step> {
    let call = u8::arbitrary(input)?;
    let request = usize::from(u8::arbitrary(input)?) % NUM_REQUESTS;
    let (first, len) = (input.int_in_range(0..=12)?, input.int_in_range(1..=12)?);
    let group = input.int_in_range(0..=2)?;
    Ok(match call % 9 {
        0 | 1 => Step::Store { request, first, len, groups: groups(group, input)? },
        2 => Step::CompleteStore { at: usize::arbitrary(input)?, is_success: !input.ratio(1, 5)? },
        3 => Step::Load { request, first, len, group },
        4 => Step::CompleteLoad { at: usize::arbitrary(input)? },
        5 => {
            let windows = (input.int_in_range(1..=4)?, input.int_in_range(1..=5)?);
            Step::LookUp { request, first, len, group, windows }
        }
        6 => Step::Finish { request },
        7 => Step::Refused { request, first, len, group },
        // Most traffic is without resets.
        _ if call > 0xf0 => Step::Reset,
        _ if call > 0xc0 => Step::CompleteRead { at: usize::arbitrary(input)? },
        _ if call > 0x90 => Step::Read { request, first, len, group },
        _ => Step::Touch { prompt: u64::from(group), first, len },
    })
}

/// Returns one to three groups. The first one is `first`.
fn groups(first: u16, input: &mut Unstructured<'_>) -> Result<Vec<u16>> {
    let mut groups: Vec<_> = (first..first + 3).map(|group| group % 3).collect();
    if bool::arbitrary(input)? {
        groups[1..].reverse();
    }
    groups.truncate(input.int_in_range(1..=3)?);
    Ok(groups)
}
