//! Slots for a step of a request: what left a window is given back, a hit is adopted, new blocks
//! are taken, and what became full is cached.

use super::Manager;
use super::args::AllocateArgs;
use super::request_turn::RequestTurn;
use super::resumes;
use super::room::Room;
use crate::block::BlockId;
use crate::error::{Error, Result};
use crate::group::{BlockDemand, Slots};
use crate::request::{RequestBlocks, RequestView};

impl Manager {
    /// Takes slots for a step of a request: `None` if they do not fit, else the new blocks of
    /// each group.
    pub fn allocate_slots(
        &mut self,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
    ) -> Result<Option<Vec<Vec<BlockId>>>> {
        let computed = args.total_computed(request);
        self.check_allocation(computed, args)?;
        self.check_running_hit(request.id, args.new_computed_blocks)?;
        let max_model_len = self.config.max_model_len;
        let total_computed = computed.min(max_model_len);
        let num_final = args.num_final(request);
        let slots = Slots {
            num_tokens: num_final.saturating_add(args.num_lookahead_tokens).min(max_model_len),
            num_tokens_main_model: total_computed.saturating_add(args.num_new_tokens),
            num_encoder_tokens: args.num_encoder_tokens,
        };
        let step = BlockDemand {
            num_tokens: slots.num_tokens,
            new_computed_blocks: args.new_computed_blocks,
            total_computed_tokens: computed,
            num_local_computed_tokens: args.num_local(request),
            num_tokens_main_model: slots.num_tokens_main_model,
            num_encoder_tokens: slots.num_encoder_tokens,
            prefill_end: request.num_prompt_tokens.max(request.num_tokens.saturating_sub(1)),
            ..BlockDemand::default()
        };
        // Draft tokens may be rejected: only final ones are cached.
        let num_to_cache = (self.config.enable_caching && !args.delay_cache_blocks)
            .then(|| num_final.min(request.num_tokens).min(max_model_len));
        let room = Room { request, args, total_computed, step: &step };
        let refusal = self.check_step(&room, num_to_cache).err();
        // A request that holds something changes below, where there is room.
        if let Some(refusal) = &refusal
            && self.knows(request.id)
            && self.would_have_room(&room)
        {
            return Err(refusal.clone());
        }
        if !self.has_room(&room) {
            self.forget_unless_held(request.id);
            return Ok(None);
        }
        let checked = match refusal {
            Some(refusal) => Err(refusal),
            None if args.num_external_computed_tokens > 0 => self.check_external(request.id, &step),
            None => Ok(()),
        };
        if let Err(refusal) = checked {
            self.forget_unless_held(request.id);
            return Err(refusal);
        }
        self.forget_lookup(request.id);
        let Self { plan, groups, requests, pool, orders, admitted, resumes, .. } = self;
        let held = requests.entry(request.id).or_insert_with(|| {
            admitted.count(request, args);
            if let Some(resumes) = resumes {
                resumes::note(resumes, &mut plan.rules, groups, pool, request, args);
            }
            RequestBlocks::new(groups.len())
        });
        let mut turn = RequestTurn { id: request.id, groups, held, pool, orders };
        if args.adopts() {
            turn.adopt(args, &step);
        }
        let new_blocks = turn.extend(&slots);
        if let Some(num_tokens) = num_to_cache {
            turn.cache(plan, request, num_tokens);
        }
        Ok(Some(new_blocks))
    }

    /// Checks what vLLM's manager would stumble over once it has begun.
    fn check_step(&mut self, room: &Room<'_>, num_to_cache: Option<usize>) -> Result<()> {
        let mut has_to_count = room.args.reserved_blocks < 0;
        if self.plan.has_own_joints {
            has_to_count |= self.check_rows(room, num_to_cache)?;
        }
        self.check_adoption(room)?;
        if has_to_count {
            self.check_free_for(room)?;
        }
        Ok(())
    }

    fn check_allocation(&self, computed: usize, args: &AllocateArgs<'_>) -> Result<()> {
        let AllocateArgs { num_new_computed_tokens, num_external_computed_tokens, .. } = *args;
        if args.num_new_tokens.max(num_new_computed_tokens).max(num_external_computed_tokens) == 0 {
            return Err(Error::Request(
                "num_new_tokens is 0; it must be positive when no computed tokens are adopted"
                    .into(),
            ));
        }
        if num_external_computed_tokens > 0 && computed > self.config.max_model_len {
            return Err(Error::Request(format!(
                "{computed} tokens would be computed, more than max_model_len {}",
                self.config.max_model_len
            )));
        }
        let hit = args.new_computed_blocks;
        if !hit.is_empty() && hit.len() != self.config.groups.len() {
            return Err(Error::Request(format!(
                "new_computed_blocks has {} groups; this manager has {}",
                hit.len(),
                self.config.groups.len()
            )));
        }
        let num_blocks = self.config.num_blocks as BlockId;
        let is_outside = |any, &block: &BlockId| any | (block >= num_blocks);
        if hit.iter().any(|blocks| blocks.tail().iter().fold(false, is_outside)) {
            return Err(Error::Block("new_computed_blocks holds blocks outside this pool".into()));
        }
        let num_tokens =
            computed.min(self.config.max_model_len).saturating_add(args.num_new_tokens);
        if self.plan.has_own_joints && num_tokens > 2 * self.config.max_model_len {
            return Err(Error::Request(format!(
                "{num_tokens} tokens are to have states, more than max_model_len {}",
                self.config.max_model_len
            )));
        }
        Ok(())
    }
}
