//! Python lists and dictionaries that other code may keep, as in vLLM. They hold block tables of
//! requests, numbers of cached blocks, states inside chunks, and the alias keys of blocks. After
//! each call, the engine updates the ones that were requested.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet};

use kvoxide_core::{BlockId, GroupBlocks, Manager, RequestId};

use crate::ffi::packed_key;

/// Creates a list of the views of blocks; `None` if the engine no longer exists.
pub(super) type ViewsOf =
    Box<dyn Fn(Python<'_>, Vec<BlockId>) -> PyResult<Option<Py<PyList>>> + Send + Sync>;

/// A block table as a Python list.
struct Row {
    group: usize,
    list: Py<PyList>,
    /// Request id -> list.
    rows: Py<PyDict>,
    /// The blocks in the list.
    ids: GroupBlocks,
}

/// A value of each request in a group that a dictionary holds.
#[derive(Clone, Copy)]
pub(super) enum RequestField {
    /// The number of leading blocks that count as cached.
    NumCached,
    /// The tokens and the position of the state inside the running chunk.
    Checkpoint,
}

/// A dictionary with one field of each request for which it is known.
struct FieldsByRequest {
    group: usize,
    field: RequestField,
    /// Request id -> value.
    dict: Py<PyDict>,
}

/// The lists and dictionaries that are updated.
pub(super) struct Synced {
    views_of: ViewsOf,
    rows: hashbrown::HashMap<RequestId, Vec<Row>>,
    changed: Vec<RequestId>,
    field_dicts: Vec<FieldsByRequest>,
    /// Names of requests whose fields may have changed.
    changed_fields: Vec<(RequestId, String)>,
    alias_keys: Option<Py<PyDict>>,
}

impl Synced {
    /// Creates a value without lists and dictionaries.
    pub(super) fn new(views_of: ViewsOf) -> Box<Self> {
        let rows = hashbrown::HashMap::default();
        Box::new(Self {
            views_of,
            rows,
            changed: Vec::new(),
            field_dicts: Vec::new(),
            changed_fields: Vec::new(),
            alias_keys: None,
        })
    }

    /// Adds an empty list, which becomes the table of a request in a group, and the dictionary that
    /// holds the list.
    pub(super) fn add_row(
        &mut self,
        request: RequestId,
        group: usize,
        list: &Bound<'_, PyList>,
        rows: &Bound<'_, PyDict>,
    ) {
        let (list, rows) = (list.clone().unbind(), rows.clone().unbind());
        let row = Row { group, list, rows, ids: GroupBlocks::default() };
        self.rows.entry(request).or_default().push(row);
        self.changed.push(request);
    }

    /// Adds an empty dictionary, which gets a field of each of these requests and later ones.
    pub(super) fn add_fields(
        &mut self,
        group: usize,
        field: RequestField,
        dict: &Bound<'_, PyDict>,
        requests: impl IntoIterator<Item = (RequestId, String)>,
    ) {
        self.field_dicts.push(FieldsByRequest { group, field, dict: dict.clone().unbind() });
        self.changed_fields.extend(requests);
    }

    /// Adds an empty dictionary, which gets the alias keys of blocks.
    pub(super) fn set_alias_keys(&mut self, dict: &Bound<'_, PyDict>) {
        self.alias_keys = Some(dict.clone().unbind());
    }

    /// Returns whether a request changed since the last update.
    pub(super) fn needs_update(&self) -> bool {
        !self.changed.is_empty() || !self.changed_fields.is_empty()
    }

    /// Notes that a call may have changed the tables of a request.
    pub(super) fn note(&mut self, name: &str, request: RequestId) {
        if self.rows.contains_key(&request) {
            self.changed.push(request);
        }
        if !self.field_dicts.is_empty() {
            self.changed_fields.push((request, name.to_owned()));
        }
    }

    /// Removes the lists of a request from their dictionaries and stops updating them.
    pub(super) fn forget(&mut self, py: Python<'_>, name: &str, request: RequestId) {
        for Row { rows, .. } in self.rows.remove(&request).unwrap_or_default() {
            // Other code may have removed the entry already.
            let _ = rows.bind(py).del_item(name);
        }
        self.changed_fields.retain(|(changed, _)| *changed != request);
        for FieldsByRequest { dict, .. } in &self.field_dicts {
            // The field may be unknown for this request.
            let _ = dict.bind(py).del_item(name);
        }
    }

    /// Updates every list and dictionary.
    pub(super) fn update(
        &mut self,
        py: Python<'_>,
        core: &mut Manager,
        hash_len: usize,
    ) -> PyResult<()> {
        let Self { views_of, rows, changed, .. } = self;
        for request in std::mem::take(changed) {
            let Ok(held) = core.blocks_of(request) else { continue };
            for row in rows.get_mut(&request).into_iter().flatten() {
                row.update(py, &held.groups[row.group].blocks, views_of)?;
            }
        }
        for (request, name) in std::mem::take(&mut self.changed_fields) {
            for fields in &self.field_dicts {
                fields.update(py, core, request, &name)?;
            }
        }
        self.sync_alias_keys(py, core, hash_len)
    }

    fn sync_alias_keys(&self, py: Python<'_>, core: &mut Manager, hash_len: usize) -> PyResult<()> {
        let Some(dict) = &self.alias_keys else { return Ok(()) };
        let dict = dict.bind(py);
        for block in core.pool_mut().index_mut().alias_keys_mut().take_changed() {
            let keys = core.pool().keys_of(block).skip(1);
            let keys: Vec<_> = keys.map(|key| packed_key(py, &key, hash_len)).collect();
            match keys.is_empty() {
                false => dict.set_item(block, PySet::new(py, keys)?)?,
                true if dict.contains(block)? => dict.del_item(block)?,
                true => {}
            }
        }
        Ok(())
    }
}

impl FieldsByRequest {
    /// Updates the entry of a request.
    fn update(
        &self,
        py: Python<'_>,
        core: &Manager,
        request: RequestId,
        name: &str,
    ) -> PyResult<()> {
        let dict = self.dict.bind(py);
        let is_known = match self.field {
            RequestField::NumCached => {
                let held = core.blocks_of(request).ok();
                let count = held.and_then(|held| held.groups.get(self.group)?.num_cached_blocks);
                count.map(|count| dict.set_item(name, count))
            }
            RequestField::Checkpoint => {
                let group = core.groups().get(self.group);
                let checkpoint = group.and_then(|group| group.checkpoint(request));
                checkpoint.map(|kept| dict.set_item(name, (kept.num_tokens, kept.position)))
            }
        };
        match is_known.transpose()? {
            None if dict.contains(name)? => dict.del_item(name),
            _ => Ok(()),
        }
    }
}

impl Row {
    /// Updates the list from the first position that differs from the table.
    fn update(&mut self, py: Python<'_>, now: &GroupBlocks, views_of: &ViewsOf) -> PyResult<()> {
        if self.ids == *now {
            return Ok(());
        }
        let list = self.list.bind(py);
        let is_same = |&(was, now): &(BlockId, BlockId)| was == now;
        let first = match list.len() == self.ids.len() {
            true => self.ids.iter().zip(now.iter()).take_while(is_same).count(),
            false => 0,
        };
        if let Some(views) = views_of(py, now.since(first))? {
            list.set_slice(first, list.len(), views.bind(py).as_any())?;
        }
        self.ids = now.clone();
        Ok(())
    }
}
