//! Adaptive retention: which blocks at the ends of prompts and answers are kept.

use kvoxide_core::{GroupSpec, Manager, ManagerConfig, NULL_BLOCK, Policy};

use crate::small::{Request, admit, config, decode, look_up, made, num_protected_tails, serve};

/// Returns two groups. Hits end at multiples of 16 tokens and need the two window blocks of 4
/// tokens before that end.
fn full_and_small_window() -> [GroupSpec; 2] {
    [GroupSpec::full(16), GroupSpec::sliding_window(4, 8)]
}

fn managed(num_blocks: usize, policy: Policy) -> Manager {
    made(ManagerConfig { policy, ..config(num_blocks, &full_and_small_window()) })
}

/// Serves a prompt of 33 tokens and 40 tokens of an answer.
fn answered(manager: &mut Manager) {
    let mut request = Request::new(manager, 1, 0..33);
    admit(manager, &mut request);
    decode(manager, &mut request, 33..73);
}

/// Serves prompts that are not repeated. With `has_answers`, each has an answer of 40 tokens.
fn serve_once(manager: &mut Manager, num_prompts: u64, has_answers: bool) {
    for i in 0..num_prompts {
        let first = 10_000 + 1000 * i;
        let mut request = Request::new(manager, 10 + i, first..first + 40);
        admit(manager, &mut request);
        if has_answers {
            decode(manager, &mut request, first + 40..first + 80);
        }
        manager.free(10 + i).expect("a request that runs");
    }
}

#[test]
fn of_a_running_answer_the_last_tail_is_kept() {
    let mut manager = managed(200, Policy::adaptive());
    answered(&mut manager);
    assert_eq!(num_protected_tails(&manager), 6, "those at 16, 32 and 64 tokens, not at 48");
    manager.free(1).expect("a request that runs");
    assert_eq!(num_protected_tails(&manager), 0);
}

/// If a request continues after the answer of another one, this answer is part of its prompt.
#[test]
fn where_a_request_resumed_in_an_earlier_answer_another_can_resume_while_its_own_goes_on() {
    let mut manager = managed(50, Policy::adaptive());
    answered(&mut manager);
    manager.free(1).expect("a request that runs");
    let mut follow_up = Request::new(&manager, 2, 0..70);
    assert_eq!(admit(&mut manager, &mut follow_up), 64);
    decode(&mut manager, &mut follow_up, 70..110);
    serve_once(&mut manager, 8, false);
    assert_eq!(look_up(&mut manager, (0..66).chain(500..520)).length, 64);
}

#[test]
fn a_follow_up_resumes_at_the_end_of_an_answer_although_others_took_the_pool() {
    for (policy, num_hit) in [(Policy::every_tail(), 0), (Policy::adaptive(), 64)] {
        let mut manager = managed(60, policy);
        answered(&mut manager);
        serve_once(&mut manager, 8, false); // 104 blocks, while the answer goes on
        manager.free(1).expect("a request that runs");
        assert_eq!(look_up(&mut manager, 0..100).length, num_hit);
    }
}

#[test]
fn ends_at_which_nobody_resumes_are_evicted_before_full_blocks() {
    for (has_answers, num_tokens) in [(false, 32), (true, 64)] {
        let mut manager = managed(400, Policy::adaptive());
        serve_once(&mut manager, 300, has_answers);
        let mut request = Request::new(&manager, 1, 0..33);
        admit(&mut manager, &mut request);
        if has_answers {
            decode(&mut manager, &mut request, 33..65);
        }
        let tables = &manager.blocks_of(1).expect("a request that runs").groups;
        let block = |group: usize, i: usize| tables[group].blocks.get(i).expect("a block");
        let (full, tail) = (block(0, num_tokens / 16 - 1), block(1, num_tokens / 4 - 1));
        manager.free(1).expect("a request that runs");
        let order = manager.pool().eviction_order();
        let at = |block| order.iter().position(|&other| other == block).expect("a free block");
        assert!(tail != NULL_BLOCK && at(tail) < at(full), "{has_answers}");
    }
}

/// Serves a prompt of 145 tokens and 40 tokens of an answer. The tail at 128 has half the value of
/// a full block because of its position. Returns the number of protected tails.
fn num_protected_of_long_prompt(manager: &mut Manager, first: u64) -> usize {
    let mut request = Request::new(manager, 2, first..first + 145);
    admit(manager, &mut request);
    decode(manager, &mut request, first + 145..first + 185);
    let num_protected = num_protected_tails(manager);
    manager.free(2).expect("a request that runs");
    num_protected
}

#[test]
fn ends_get_their_value_back_where_requests_resume() {
    let mut manager = managed(400, Policy::adaptive());
    assert_eq!(num_protected_of_long_prompt(&mut manager, 0), 20, "nine boundaries, and 176");
    serve_once(&mut manager, 300, true);
    assert_eq!(num_protected_of_long_prompt(&mut manager, 1000), 2, "that at 128");
    for i in 0..60 {
        let first = 1_000_000 + 1000 * i;
        let mut request = Request::new(&manager, 2, first..first + 40);
        admit(&mut manager, &mut request);
        decode(&mut manager, &mut request, first + 40..first + 80);
        manager.free(2).expect("a request that runs");
        serve(&mut manager, 3, first..first + 100);
    }
    assert_eq!(num_protected_of_long_prompt(&mut manager, 2000), 4, "those at 128 and 176");
}

/// Serves a client that sends its prompt again for each token. It resumes many times at ends that
/// it does not pass. These ends say nothing about ends that other requests pass.
#[test]
fn a_prompt_that_grows_by_a_token_does_not_keep_the_ends_that_chats_have_passed() {
    let mut manager = managed(2000, Policy::adaptive());
    for first in (0..60_000).step_by(1000) {
        let mut opening = Request::new(&manager, 1, first..first + 34);
        admit(&mut manager, &mut opening);
        let tables = &manager.blocks_of(1).expect("a request that runs").groups;
        let at_end = [(0, 1), (1, 7)].map(|(group, i)| tables[group].blocks.get(i));
        let [full, tail] = at_end.map(|block| block.expect("a block that ends at 32 tokens"));
        manager.free(1).expect("a request that runs");
        let mut follow_up = Request::new(&manager, 2, first..first + 98);
        admit(&mut manager, &mut follow_up);
        decode(&mut manager, &mut follow_up, first + 98..first + 99);
        manager.free(2).expect("a request that runs");
        for num_tokens in 33..49 {
            serve(&mut manager, 3, first + 500..first + 500 + num_tokens);
        }
        let order = manager.pool().eviction_order();
        let at = |block| order.iter().position(|&other| other == block).expect("a free block");
        assert!(at(tail) < at(full) || first < 10_000, "{first}");
    }
}
