//! The keys of a request's chunks. Rust holds them; Python sees them as sequences of `bytes`, each
//! made when it is read.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PySlice};

use kvoxide_core::host::{HostTier, PositionedKey, PrefixMemo};
use kvoxide_core::{BlockHash, CacheKey, GroupId};

use super::hash_lengths::HashLengths;
use crate::ffi::{ComputedChain, contained, each_block};

/// The keys of a request's chunks in each group. They grow with the request's block hashes.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmRequestKeys")]
pub(crate) struct RequestKeys {
    groups: Vec<Group>,
    columns: Vec<Column>,
    hash_lengths: Option<HashLengths>,
}

struct Group {
    id: GroupId,
    tokens_per_chunk: u32,
    /// The column with the hashes of its chunks.
    column: usize,
    /// The chunk at which the last look-up began, and its result.
    memo: Mutex<(usize, PrefixMemo)>,
}

/// Every so many of the request's hashes.
#[derive(Default)]
struct Column {
    hashes_per_chunk: usize,
    /// The request's first hashes, all of them, if they were in Rust already.
    head: Arc<Vec<BlockHash>>,
    /// The column's hashes after the head.
    tail: Vec<BlockHash>,
    /// The places of the first hashes, as many as were needed so far.
    index: HashMap<BlockHash, u32, foldhash::fast::FixedState>,
}

impl Column {
    fn len(&self) -> usize {
        self.num_in_head() + self.tail.len()
    }

    fn num_in_head(&self) -> usize {
        self.head.len() / self.hashes_per_chunk
    }

    #[inline]
    fn hash(&self, at: usize) -> BlockHash {
        match self.head.get((at + 1) * self.hashes_per_chunk - 1) {
            Some(hash) => *hash,
            None => self.tail[at - self.num_in_head()],
        }
    }

    /// Returns the hashes that a request's list has beyond those here.
    fn read(
        &self,
        list: &Bound<'_, PyList>,
        hash_lengths: &mut Option<HashLengths>,
    ) -> PyResult<Vec<BlockHash>> {
        let stride = self.hashes_per_chunk;
        let places = ((self.len() + 1) * stride - 1..list.len()).step_by(stride);
        let mut new = Vec::with_capacity(places.len());
        for at in places {
            let hash = list.get_item(at)?;
            let bytes = hash.cast::<PyBytes>()?.as_bytes();
            new.push(HashLengths::hash(list.py(), bytes, hash_lengths)?);
        }
        Ok(new)
    }

    fn place(&mut self, hash: &BlockHash) -> Option<u32> {
        for at in self.index.len()..self.len() {
            self.index.insert(self.hash(at), at as u32);
        }
        self.index.get(hash).copied()
    }
}

#[pymethods]
impl RequestKeys {
    /// Takes the id of each group, its hashes a chunk and its tokens a chunk.
    #[new]
    fn new(groups: Vec<(GroupId, usize, u32)>) -> PyResult<Self> {
        let mut made = Self { groups: Vec::new(), columns: Vec::new(), hash_lengths: None };
        for (id, hashes_per_chunk, tokens_per_chunk) in groups {
            if hashes_per_chunk == 0 || tokens_per_chunk == 0 {
                let message =
                    format!("a chunk of group {id} needs at least one hash and one token");
                return Err(PyValueError::new_err(message));
            }
            let is_its = |column: &Column| column.hashes_per_chunk == hashes_per_chunk;
            let column = made.columns.iter().position(is_its).unwrap_or_else(|| {
                made.columns.push(Column { hashes_per_chunk, ..Column::default() });
                made.columns.len() - 1
            });
            made.groups.push(Group { id, tokens_per_chunk, column, memo: Mutex::default() });
        }
        Ok(made)
    }

    /// Reads the hashes that the request has got. Its `attributes` tell which are in Rust already.
    #[pyo3(signature = (hashes, attributes=None))]
    fn extend(
        &mut self,
        hashes: &Bound<'_, PyList>,
        attributes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        if self.hash_lengths.is_none()
            && let Some(ComputedChain { head }) =
                attributes.and_then(|of| ComputedChain::of(of, hashes))
            && !head.is_empty()
        {
            self.hash_lengths = Some(HashLengths::Longest);
            self.columns.iter_mut().for_each(|column| column.head = Arc::clone(&head));
        }
        let mut hash_lengths = self.hash_lengths;
        let new = self.columns.iter().map(|column| column.read(hashes, &mut hash_lengths));
        let new = new.collect::<PyResult<Vec<_>>>()?;
        self.hash_lengths = hash_lengths;
        for (column, new) in self.columns.iter_mut().zip(new) {
            match column.tail.is_empty() {
                true => column.tail = new,
                false => column.tail.extend(new),
            }
        }
        Ok(())
    }

    /// Returns the keys of each group, as a list that grows.
    fn groups(slf: &Bound<'_, Self>) -> Vec<GroupKeys> {
        let group = |group| GroupKeys { keys: slf.clone().unbind(), group };
        (0..slf.borrow().groups.len()).map(group).collect()
    }

    /// Returns the number of tokens up to the end of a chunk; `None` for a key that is not here.
    fn position(&mut self, key: &Bound<'_, PyBytes>) -> PyResult<Option<u32>> {
        let Some(key) = HashLengths::known_key(key, self.hash_lengths)? else { return Ok(None) };
        let Some(group) = self.groups.iter().find(|group| group.id == key.group) else {
            return Ok(None);
        };
        let place = self.columns[group.column].place(&key.hash);
        Ok(place.map(|at| (at + 1).saturating_mul(group.tokens_per_chunk)))
    }
}

impl RequestKeys {
    /// Returns how many keys a group has.
    pub(super) fn num_keys(&self, group: usize) -> usize {
        self.columns[self.groups[group].column].len()
    }

    /// Returns the key of a group's chunk.
    pub(super) fn key(&self, group: usize, at: usize) -> CacheKey {
        let Group { id, column, .. } = &self.groups[group];
        CacheKey { hash: self.columns[*column].hash(at), group: *id }
    }

    /// Returns the keys of a group's chunks at these places.
    pub(super) fn keys(
        &self,
        group: usize,
        places: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = CacheKey> + ExactSizeIterator + use<'_> {
        places.map(move |at| self.key(group, at))
    }

    /// Returns how many keys of a group's chunks a tier has, from the first of these places on;
    /// `None` if one of them is pending. A look-up from the same place on is remembered.
    pub(super) fn lookup_prefix(
        &self,
        group: usize,
        places: Range<usize>,
        tier: &HostTier,
    ) -> Option<usize> {
        let mut memo = self.groups[group].memo.lock().unwrap_or_else(PoisonError::into_inner);
        if memo.0 != places.start {
            *memo = (places.start, PrefixMemo::default());
        }
        let key = |at| self.key(group, places.start + at);
        tier.lookup_prefix_again(key, places.len(), &mut memo.1)
    }

    fn run(&self, run: &Run) -> impl DoubleEndedIterator<Item = PositionedKey> + Clone + use<'_> {
        let Group { id, tokens_per_chunk, column, .. } = self.groups[run.group];
        let column = &self.columns[column];
        run.places.clone().map(move |at| {
            let position = (at as u32 + 1).saturating_mul(tokens_per_chunk);
            (CacheKey { hash: column.hash(at), group: id }, Some(position))
        })
    }
}

/// The keys of a group, as a list that grows with its request.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmGroupKeys", frozen, sequence)]
pub(crate) struct GroupKeys {
    keys: Py<RequestKeys>,
    group: usize,
}

impl GroupKeys {
    /// Returns all keys that there are now.
    fn now(&self, py: Python<'_>) -> ChunkKeys {
        let places = 0..self.__len__(py);
        let run = Run { group: self.group, places };
        ChunkKeys { keys: self.keys.clone_ref(py), runs: vec![run] }
    }
}

#[pymethods]
impl GroupKeys {
    fn __len__(&self, py: Python<'_>) -> usize {
        self.keys.borrow(py).num_keys(self.group)
    }

    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.now(index.py()).__getitem__(index)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.now(py).__iter__(py)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.now(other.py()).__eq__(other)
    }

    /// Reads the hashes that the request has got, for all of its groups.
    #[pyo3(signature = (hashes, attributes=None))]
    fn extend(
        &self,
        hashes: &Bound<'_, PyList>,
        attributes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.keys.borrow_mut(hashes.py()).extend(hashes, attributes)
    }
}

impl GroupKeys {
    /// Returns the keys of all groups.
    pub(super) fn of_request<'py>(&self, py: Python<'py>) -> &Bound<'py, RequestKeys> {
        self.keys.bind(py)
    }

    /// Returns which group of the request this is.
    pub(super) fn group(&self) -> usize {
        self.group
    }
}

/// Keys of some chunks of a request, group by group.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmChunkKeys", frozen, sequence)]
pub(crate) struct ChunkKeys {
    keys: Py<RequestKeys>,
    runs: Vec<Run>,
}

/// Chunks of a group that follow each other.
#[derive(Clone)]
struct Run {
    group: usize,
    places: Range<usize>,
}

#[pymethods]
impl ChunkKeys {
    /// Returns the keys of all parts, which are of one request.
    #[staticmethod]
    fn joined(parts: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let Some(first) = parts.first() else {
            return Err(PyValueError::new_err("at least one part is needed to join keys"));
        };
        if !parts.iter().all(|part| part.keys.is(&first.keys)) {
            return Err(PyValueError::new_err("keys of different requests cannot be joined"));
        }
        let runs = parts.iter().flat_map(|part| part.runs.iter().cloned()).collect();
        Ok(Self { keys: first.keys.clone_ref(first.py()), runs })
    }

    fn __len__(&self) -> usize {
        self.num_keys()
    }

    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = index.py();
        let Ok(slice) = index.cast::<PySlice>() else {
            let len = self.__len__();
            let index: isize = index.extract()?;
            let at = if index < 0 { index.checked_add_unsigned(len) } else { Some(index) };
            let at = at.and_then(|at| usize::try_from(at).ok()).filter(|&at| at < len);
            let at = at.ok_or_else(|| PyIndexError::new_err("no such key"))?;
            let owner = self.owner(py);
            let one = self.part(at..at + 1);
            let key = one.first().map(|run| owner.key(run.group, run.places.start));
            let key = key.ok_or_else(|| PyIndexError::new_err("no such key"))?;
            return contained(py, || Ok(self.packed(py, &key).into_any()));
        };
        let indices = slice.indices(self.__len__() as isize)?;
        if indices.step != 1 {
            return self.list(py)?.as_any().get_item(index);
        }
        let end = indices.start.max(indices.stop);
        let part = self.part(indices.start.unsigned_abs()..end.unsigned_abs());
        Ok(Bound::new(py, Self { keys: self.keys.clone_ref(py), runs: part })?.into_any())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.list(py)?.try_iter()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.list(other.py())?.eq(other.try_iter()?.collect::<PyResult<Vec<_>>>()?)
    }

    fn __concat__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let others = other.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        self.list(other.py())?.as_any().add(others)
    }
}

impl ChunkKeys {
    /// Returns no key of a request.
    pub(super) fn empty_of(keys: &Bound<'_, RequestKeys>) -> Self {
        Self { keys: keys.clone().unbind(), runs: Vec::new() }
    }

    /// Returns the blocks of the chunks, by the block ids of all groups; how many there are in each
    /// group, and the place of the first of them, else 0.
    pub(super) fn blocks<'py>(
        &self,
        py: Python<'py>,
        tables: Vec<Bound<'py, PyList>>,
    ) -> PyResult<(Vec<Bound<'py, PyList>>, Vec<usize>)> {
        let mut blocks: Vec<_> = tables.iter().map(|_| PyList::empty(py)).collect();
        let mut firsts = vec![0; tables.len()];
        for Run { group, places } in &self.runs {
            let table = tables.get(*group).filter(|table| table.len() >= places.end);
            let table = table.ok_or_else(|| PyIndexError::new_err("a chunk has no block"))?;
            let ids = table.get_slice(places.start, places.end);
            if blocks[*group].is_empty() {
                (firsts[*group], blocks[*group]) = (places.start, ids);
            } else {
                blocks[*group].as_any().call_method1("extend", (ids,))?;
            }
        }
        Ok((blocks, firsts))
    }

    /// Adds the keys of a group's chunks at these places, which follow the places that it has of the
    /// group.
    pub(super) fn add(&mut self, group: usize, places: Range<usize>) {
        if !places.is_empty() {
            self.runs.push(Run { group, places });
        }
    }

    /// Adds the keys of a group's chunks from `start` to before `end` whose block in `block_ids` is
    /// not the null block and, if there is a `mask` of them, that it has.
    pub(super) fn add_stored(
        &mut self,
        group: usize,
        places: Range<usize>,
        block_ids: &Bound<'_, PyList>,
        mask: Option<&[bool]>,
    ) -> PyResult<()> {
        let start = places.start;
        each_block(block_ids, places, |at, _| {
            if mask.is_none_or(|mask| mask.get(at - start) == Some(&true)) {
                self.push(group, at);
            }
            Ok(true)
        })
    }

    pub(crate) fn num_keys(&self) -> usize {
        self.runs.iter().map(|run| run.places.len()).sum()
    }

    pub(crate) fn owner<'py>(&self, py: Python<'py>) -> PyRef<'py, RequestKeys> {
        self.keys.bind(py).borrow()
    }

    /// Returns the keys with their positions. `owner` is theirs.
    pub(crate) fn with_positions<'a>(
        &'a self,
        owner: &'a RequestKeys,
    ) -> impl DoubleEndedIterator<Item = PositionedKey> + Clone + use<'a> {
        self.runs.iter().flat_map(|run| owner.run(run))
    }

    /// Returns how many keys a tier has from the first one on, `None` if one of them is pending.
    pub(crate) fn lookup_prefix(&self, owner: &RequestKeys, tier: &HostTier) -> Option<usize> {
        match &self.runs[..] {
            [Run { group, places }] => owner.lookup_prefix(*group, places.clone(), tier),
            _ => tier.lookup_prefix(self.with_positions(owner).map(|(key, _)| key)),
        }
    }

    /// Returns the keys at some places, which ascend.
    pub(crate) fn selected(&self, py: Python<'_>, places: &[usize]) -> Self {
        let mut selected = Self { keys: self.keys.clone_ref(py), runs: Vec::new() };
        let mut places = places.iter().copied().peekable();
        let mut start = 0;
        for run in &self.runs {
            let end = start + run.places.len();
            while let Some(at) = places.next_if(|&at| at < end) {
                selected.push(run.group, run.places.start + at - start);
            }
            start = end;
        }
        selected
    }

    fn push(&mut self, group: usize, place: usize) {
        match self.runs.last_mut() {
            Some(run) if run.group == group && run.places.end == place => run.places.end += 1,
            _ => self.runs.push(Run { group, places: place..place + 1 }),
        }
    }

    fn part(&self, range: Range<usize>) -> Vec<Run> {
        let mut start = 0;
        let mut part = Vec::new();
        for Run { group, places } in &self.runs {
            let first = range.start.saturating_sub(start).min(places.len());
            let last = range.end.saturating_sub(start).min(places.len());
            if first < last {
                part.push(Run { group: *group, places: places.start + first..places.start + last });
            }
            start += places.len();
        }
        part
    }

    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let owner = self.owner(py);
        contained(py, || {
            let keys: Vec<_> =
                self.with_positions(&owner).map(|(key, _)| self.packed(py, &key)).collect();
            PyList::new(py, keys)
        })
    }

    fn packed<'py>(&self, py: Python<'py>, key: &CacheKey) -> Bound<'py, PyBytes> {
        HashLengths::packed(self.owner(py).hash_lengths, py, key)
    }
}

impl RequestKeys {
    /// Returns the lengths of the hashes, once there was one.
    pub(crate) fn hash_lengths(&self) -> Option<HashLengths> {
        self.hash_lengths
    }
}
