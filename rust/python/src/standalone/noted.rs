//! Notes of a manager for a tier that decides together with it.

use std::sync::Arc;

use kvoxide_core::host::HostGroup;
use kvoxide_core::joint::attached_tables;
use kvoxide_core::{AllocateArgs, GroupBlocks, Manager, RequestId, RequestView};

/// The calls of a manager that a tier reads at the next step.
pub(crate) struct Noted {
    /// The groups of the manager that cache blocks.
    pub(super) groups: Arc<[HostGroup]>,
    /// The requests that were admitted without a load.
    pub(crate) admitted: Vec<RequestId>,
    /// Whether a request ended.
    pub(crate) has_ended: bool,
}

impl Noted {
    pub(super) fn new(groups: &[HostGroup]) -> Self {
        Self { groups: groups.into(), admitted: Vec::new(), has_ended: false }
    }

    /// Returns the tables of a hit with the blocks that a load attaches, if slots are allocated for
    /// a load.
    pub(super) fn attached(
        &self,
        core: &Manager,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
    ) -> Option<Vec<GroupBlocks>> {
        let (num_local, num_loaded) =
            (args.num_new_computed_tokens, args.num_external_computed_tokens);
        (num_loaded > 0 && !core.knows(request.id)).then(|| {
            let tokens = (num_local, num_local + num_loaded);
            attached_tables(core, request, &self.groups, args.new_computed_blocks, tokens)
        })
    }

    /// Notes that a request has got slots.
    pub(super) fn note_slots(&mut self, request: &RequestView<'_>, args: &AllocateArgs<'_>) {
        if request.is_waiting && args.num_external_computed_tokens == 0 {
            self.admitted.push(request.id);
        }
    }
}
