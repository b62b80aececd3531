//! Priorities: blocks of requests that set a retention priority other than the default.

use std::sync::Arc;

use kvoxide_core::pool::EffectivePriority;
use kvoxide_core::{
    BlockId, Error, GroupSpec, Manager, ManagerConfig, Policy, ProtectedShare, RequestRetention,
    RetentionPriority, check,
};

use crate::small::{Request, admit, config, held, look_up, made, num_protected_tails, step};

fn adaptive(num_blocks: usize, groups: &[GroupSpec], share: f64) -> Manager {
    let protected_share = ProtectedShare::new(share).expect("a share");
    let policy = Policy { protected_share, ..Policy::adaptive() };
    made(ManagerConfig { policy, ..config(num_blocks, groups) })
}

fn full(num_blocks: usize, share: f64) -> Manager {
    adaptive(num_blocks, &[GroupSpec::full(4)], share)
}

fn claim(priority: i64) -> Arc<RequestRetention> {
    Arc::new(RetentionPriority::new(priority, None).expect("a priority").into())
}

fn for_seconds(priority: i64, seconds: f64) -> Arc<RequestRetention> {
    Arc::new(RetentionPriority::new(priority, Some(seconds)).expect("a priority and a time").into())
}

/// Serves a request from look-up to release. Returns the tokens that were hit.
fn serve(
    manager: &mut Manager,
    id: u64,
    tokens: impl IntoIterator<Item = u64>,
    claim: Option<Arc<RequestRetention>>,
) -> usize {
    let mut request = Request::new(manager, id, tokens);
    let claim = claim.as_ref();
    let num_hit = manager.with_retention(claim, |manager| admit(manager, &mut request));
    manager.with_retention(claim, |manager| manager.free(id)).expect("a request that runs");
    assert_eq!(check(manager), Ok(()));
    num_hit
}

/// Returns the tokens of a prompt that shares no tokens with other prompts, in blocks of 4.
fn own(prompt: u64, num_blocks: u64) -> std::ops::Range<u64> {
    prompt * 10_000..prompt * 10_000 + num_blocks * 4
}

fn num_hit(manager: &mut Manager, prompt: u64, num_blocks: u64) -> usize {
    look_up(manager, own(prompt, num_blocks).chain([7])).length
}

fn priority_of(manager: &Manager, block: BlockId) -> Option<EffectivePriority> {
    manager.pool().adaptive().expect("adaptive retention").priority_of(block)
}

fn num_high_priority(manager: &Manager) -> usize {
    manager.pool().adaptive().expect("adaptive retention").num_high_priority()
}

#[test]
fn the_lower_priority_goes_first_and_of_equals_the_longest_unused() {
    let mut manager = full(21, 1.0);
    for (prompt, priority) in [(1, 80), (2, 90), (3, 80), (4, 0), (5, 20), (6, 50)] {
        serve(&mut manager, prompt, own(prompt, 3), Some(claim(priority)));
    }
    assert_eq!(num_high_priority(&manager), 9);
    // Two free blocks were never used before.
    for (other, gone) in [(11, &[4][..]), (12, &[4, 5]), (13, &[4, 5, 6]), (14, &[4, 5, 6])] {
        serve(&mut manager, other, own(other, 3), None);
        for prompt in 1..7 {
            let is_gone = num_hit(&mut manager, prompt, 3) < 12;
            assert_eq!(is_gone, gone.contains(&prompt), "{prompt} after {other}");
        }
    }
    let mut running = Request::new(&manager, 20, own(20, 17));
    admit(&mut manager, &mut running);
    let left = [1, 3, 2].map(|prompt| num_hit(&mut manager, prompt, 3));
    assert_eq!(left, [0, 0, 12], "what is kept counts as free, and the highest goes last");
    assert_eq!((num_high_priority(&manager), check(&manager)), (3, Ok(())));
}

#[test]
fn blocks_of_low_priority_go_before_worthless_ones() {
    let mut manager = full(9, 0.25);
    serve(&mut manager, 1, own(1, 4), Some(claim(0)));
    serve(&mut manager, 2, own(2, 4), None);
    serve(&mut manager, 3, own(3, 2), Some(claim(0)));
    serve(&mut manager, 4, own(4, 2), Some(claim(0)));
    assert_eq!(num_hit(&mut manager, 2, 4), 16);
    assert_eq!([1, 3, 4].map(|prompt| num_hit(&mut manager, prompt, 2)), [0, 8, 8]);
}

#[test]
fn beyond_the_protected_share_the_longest_unused_loses_its_priority() {
    let mut manager = full(41, 0.25);
    for prompt in 1..4 {
        serve(&mut manager, prompt, own(prompt, 4), Some(claim(100)));
        assert_eq!(num_high_priority(&manager), (4 * prompt as usize).min(10));
    }
    for other in 10..40 {
        serve(&mut manager, other, own(other, 8), None);
    }
    // The end of the oldest prompt was evicted first.
    assert_eq!([1, 2, 3].map(|prompt| num_hit(&mut manager, prompt, 4)), [8, 16, 16]);
    serve(&mut manager, 4, own(4, 3), Some(claim(60)));
    assert_eq!(num_high_priority(&manager), 10);
    for other in 40..70 {
        serve(&mut manager, other, own(other, 8), None);
    }
    let left = [1, 2, 3, 4].map(|prompt| num_hit(&mut manager, prompt, 3));
    assert_eq!(left, [8, 12, 12, 0], "a lower priority gives way before an older block");
}

#[test]
fn without_a_share_nothing_is_protected() {
    let mut manager = full(41, 0.0);
    serve(&mut manager, 1, own(1, 4), Some(claim(100)));
    assert_eq!(num_high_priority(&manager), 0);
}

#[test]
fn a_priority_ends_after_its_time_to_live() {
    for priority in [0, 100] {
        let mut manager = full(41, 0.25);
        manager.set_now(1_000);
        serve(&mut manager, 1, own(1, 4), Some(for_seconds(priority, 2.0)));
        assert!(manager.has_times_to_live());
        let end = |manager: &Manager| priority_of(manager, 1).map(|s| s.until);
        assert_eq!(end(&manager), Some(3_000));
        manager.set_now(2_999);
        assert_eq!(end(&manager), Some(3_000));
        manager.set_now(2_000); // goes on where it was
        manager.set_now(3_000);
        assert_eq!((end(&manager), num_high_priority(&manager)), (None, 0));
        assert_eq!(check(&manager), Ok(()));
        assert_eq!(num_hit(&mut manager, 1, 4), 16, "it waits as others do");
        (10..40).for_each(|other| _ = serve(&mut manager, other, own(other, 8), None));
        assert_eq!(num_hit(&mut manager, 1, 4), 0);
    }
}

#[test]
fn the_time_to_live_counts_from_the_last_use_with_the_priority() {
    let mut manager = full(41, 0.25);
    let claim = Some(for_seconds(80, 2.0));
    let mut request = Request::new(&manager, 1, own(1, 4));
    manager.with_retention(claim.as_ref(), |manager| admit(manager, &mut request));
    manager.set_now(5_000); // longer than the time to live
    manager.with_retention(claim.as_ref(), |manager| manager.free(1)).expect("a request that runs");
    assert_eq!(num_high_priority(&manager), 4);
    manager.set_now(6_000);
    serve(&mut manager, 2, own(1, 4), None);
    manager.set_now(6_999);
    assert_eq!(num_high_priority(&manager), 4);
    manager.set_now(7_000);
    assert_eq!((num_high_priority(&manager), check(&manager)), (0, Ok(())));
}

#[test]
fn a_shared_prefix_has_the_highest_live_priority() {
    let priority = |manager: &Manager| priority_of(manager, 1).map(|s| s.priority);
    for (claims, expected) in [
        ([Some(80), None, Some(60)], Some(80)),
        ([Some(60), Some(80), None], Some(80)),
        ([None, Some(20), None], None),
        ([Some(20), None, Some(10)], None),
        ([Some(20), Some(10), Some(30)], Some(30)),
        ([Some(20), Some(50), Some(0)], None),
    ] {
        let mut manager = full(41, 1.0);
        for (id, priority) in (1..).zip(claims) {
            serve(&mut manager, id, own(1, 4).chain([id]), priority.map(claim));
        }
        assert_eq!(priority(&manager), expected, "{claims:?}");
    }
}

#[test]
fn an_ended_priority_does_not_count() {
    let mut manager = full(41, 1.0);
    serve(&mut manager, 1, own(1, 4), Some(for_seconds(90, 1.0)));
    let mut request = Request::new(&manager, 2, own(1, 4).chain([7]));
    admit(&mut manager, &mut request); // in use while the time ends
    manager.set_now(2_000);
    let mut other = Request::new(&manager, 3, own(1, 4).chain([7]));
    manager.with_retention(Some(&claim(60)), |manager| admit(manager, &mut other));
    [2, 3].into_iter().for_each(|id| manager.free(id).expect("a request that runs"));
    let own = priority_of(&manager, 1).expect("a priority");
    assert_eq!((own.priority, num_high_priority(&manager)), (60, 4));
}

#[test]
fn a_duplicate_inherits_the_priority_of_the_first_block() {
    let mut manager = full(21, 1.0);
    serve(&mut manager, 1, own(1, 1), Some(claim(80)));
    serve(&mut manager, 2, own(1, 1), None); // of four tokens none can be hit
    let kept: Vec<_> = (1..21).filter_map(|block| priority_of(&manager, block)).collect();
    assert_eq!((kept.len(), kept[0].priority, num_high_priority(&manager)), (1, 80, 1));
}

#[test]
fn window_tails_have_the_priority_of_their_prefix() {
    let groups = [GroupSpec::full(4), GroupSpec::sliding_window(4, 8)];
    let mut manager = adaptive(400, &groups, 0.5);
    let mut request = Request::new(&manager, 1, own(1, 30).chain([7]));
    manager.with_retention(Some(&claim(80)), |manager| {
        step(manager, &mut request, 64);
        step(manager, &mut request, 57);
        manager.free(1).expect("a request that runs");
    });
    assert!(num_high_priority(&manager) > 30, "{}", num_high_priority(&manager));
    (10..60).for_each(|other| _ = serve(&mut manager, other, own(other, 40), None));
    assert_eq!(num_hit(&mut manager, 1, 30), 120);
}

#[test]
fn tails_of_low_priority_are_not_protected() {
    let groups = [GroupSpec::full(4), GroupSpec::sliding_window(4, 8)];
    let num_protected_with = |priority| {
        let mut manager = adaptive(400, &groups, 0.5);
        let mut request = Request::new(&manager, 1, own(1, 30));
        manager.with_retention(Some(&claim(priority)), |manager| {
            step(manager, &mut request, 80);
            step(manager, &mut request, 40);
        });
        assert_eq!(check(&manager), Ok(()));
        num_protected_tails(&manager)
    };
    assert_eq!(num_protected_with(10), 0);
    assert_eq!(num_protected_with(80), num_protected_with(50));
}

#[test]
fn evicted_blocks_leave_the_list_of_their_priority() {
    for priority in [10, 90] {
        let mut manager = full(41, 1.0);
        serve(&mut manager, 1, own(1, 4), Some(for_seconds(priority, 9.0)));
        manager.evict_blocks(&[2]).expect("a block of the pool");
        assert_eq!((priority_of(&manager, 2), check(&manager)), (None, Ok(())));
        assert!(manager.reset_prefix_cache());
        assert_eq!((num_high_priority(&manager), check(&manager)), (0, Ok(())));
        assert_eq!(manager.pool().num_free_blocks(), 40);
    }
}

#[test]
fn popped_blocks_keep_their_priority() {
    let mut manager = full(41, 1.0);
    let mut request = Request::new(&manager, 1, own(1, 4));
    let blocks = manager.with_retention(Some(&claim(80)), |manager| {
        admit(manager, &mut request);
        manager.pop_blocks_for_free(1).expect("a request that runs")
    });
    manager.release_blocks(&blocks).expect("blocks in use");
    assert_eq!((num_high_priority(&manager), check(&manager)), (4, Ok(())));
}

#[test]
fn a_request_that_is_preempted_gives_nothing_up() {
    let hits_after = |is_preempted: bool, pops: bool| {
        let mut manager = full(41, 0.25);
        serve(&mut manager, 1, own(1, 16), None);
        let ending = RequestRetention::default().in_session(7).ending_session();
        let mut request = Request::new(&manager, 2, own(2, 16));
        manager.with_retention(Some(&Arc::new(ending.clone())), |manager| {
            admit(manager, &mut request);
        });
        let at_release = if is_preempted { ending.while_preempted() } else { ending };
        manager.with_retention(Some(&Arc::new(at_release)), |manager| match pops {
            false => manager.free(2).expect("a request that runs"),
            true => {
                let mut blocks = manager.pop_blocks_for_free(2).expect("a request that runs");
                blocks.reverse();
                manager.release_blocks(&blocks).expect("blocks in use");
            }
        });
        serve(&mut manager, 3, own(3, 16), None);
        [1, 2].map(|prompt| num_hit(&mut manager, prompt, 16))
    };
    for pops in [false, true] {
        assert_eq!(hits_after(false, pops), [64, 32]);
        assert_eq!(hits_after(true, pops), [32, 64]);
    }
}

#[test]
fn blocks_in_use_are_never_taken_whatever_their_priority() {
    let mut manager = full(21, 0.5);
    let mut running = Request::new(&manager, 1, own(1, 8));
    manager.with_retention(Some(&claim(0)), |manager| admit(manager, &mut running));
    let blocks = held(&manager, 1);
    (10..40).for_each(|other| _ = serve(&mut manager, other, own(other, 6), Some(claim(100))));
    assert_eq!(held(&manager, 1), blocks);
}

/// Returns the hits of requests without priorities, while another client sets a priority for every
/// request.
fn hits_beside(num_blocks: usize, claimed: Option<Arc<RequestRetention>>) -> usize {
    let mut manager = adaptive(num_blocks, &[GroupSpec::full(4)], 0.25);
    let mut random = 9_u64;
    let mut draw = |n: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % n
    };
    (0..6_000)
        .map(|id| match id % 2 {
            0 => {
                let prompt = draw(40) * draw(40) / 40; // some more often than others
                serve(&mut manager, id, own(prompt, 20).chain([7]), None)
            }
            _ => {
                serve(&mut manager, id, own(1_000 + draw(500), 20).chain([7]), claimed.clone());
                0
            }
        })
        .sum()
}

#[test]
fn a_client_with_the_highest_priority_gets_at_most_the_protected_share() {
    let (whole, claimed, smaller) =
        (hits_beside(401, None), hits_beside(401, Some(claim(100))), hits_beside(301, None));
    assert!(claimed >= smaller, "{claimed} instead of {smaller}, {whole} in all of the pool");
    assert!(whole > claimed, "the share is taken from others");
}

#[test]
fn a_protected_share_needs_adaptive_retention() {
    let protected_share = ProtectedShare::new(0.5).expect("a share");
    let policy = Policy { protected_share, ..Policy::every_tail() };
    let refused = Manager::new(ManagerConfig { policy, ..config(61, &[GroupSpec::full(4)]) });
    let Err(Error::Config(message)) = refused else { panic!("not refused") };
    assert!(message.starts_with("protected_share needs adaptive retention"), "{message}");
    for share in [-0.1, 1.1, f64::NAN] {
        assert!(ProtectedShare::new(share).is_err());
    }
    let standard = made(config(61, &[GroupSpec::full(4)]));
    assert!(matches!(standard.check_takes_priorities(), Err(Error::Request(_))));
    assert_eq!(full(61, 0.25).check_takes_priorities(), Ok(()));
}
