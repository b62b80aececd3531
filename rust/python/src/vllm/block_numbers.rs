//! Replaces the block hashes of a server's requests in a recording by numbers.

use std::fmt::Write;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use kvoxide_core::BlockHash;
use kvoxide_core::pool::num_samples;

use crate::ffi::contained;

/// Capacity of a map of 2^22 places, which takes 72 MB.
const PER_GENERATION: usize = 3_670_016;

/// Numbers hashes in the order in which they first appear. For each hash it keeps 64 bits, mixed
/// with a secret of this process. It keeps the hashes that were seen last: at least
/// `per_generation`, and at most twice this number.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmBlockNumbers")]
pub(crate) struct VllmBlockNumbers {
    mixer: RandomState,
    young: HashMap<u64, u64, foldhash::fast::RandomState>,
    old: HashMap<u64, u64, foldhash::fast::RandomState>,
    per_generation: usize,
    next: u64,
    /// New numbers whose blocks are sampled, by the number of densities less 1; `None` where nothing
    /// samples.
    sampled: Option<Vec<Vec<u64>>>,
}

#[pymethods]
impl VllmBlockNumbers {
    #[new]
    #[pyo3(signature = (per_generation=PER_GENERATION, has_samples=false))]
    fn new(per_generation: usize, has_samples: bool) -> PyResult<Self> {
        if per_generation == 0 {
            return Err(PyValueError::new_err("per_generation is 0; it must be at least 1"));
        }
        Ok(Self {
            mixer: RandomState::default(),
            young: HashMap::default(),
            old: HashMap::default(),
            per_generation,
            next: 0,
            sampled: has_samples.then(Vec::new),
        })
    }

    fn __len__(&self) -> usize {
        self.young.len() + self.old.len()
    }

    fn of_request<'py>(
        &mut self,
        py: Python<'py>,
        hashes: &Bound<'py, PyList>,
        num_known: usize,
        num_prompt: usize,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let has_samples = self.sampled.is_some();
        let known = hashes.iter().take(num_known).map(|hash| {
            let bytes = hash.cast::<PyBytes>()?.as_bytes();
            let of_hash = BlockHash::from_slice(bytes).filter(|_| has_samples);
            let num_samples = of_hash.map_or(0, |hash| num_samples(&hash) as usize);
            Ok((self.mixer.hash_one(bytes), num_samples))
        });
        let known = known.collect::<PyResult<Vec<_>>>()?;
        let (prompt, output) = contained(py, || Ok(py.detach(|| self.number(&known, num_prompt))))?;
        Ok((PyBytes::new(py, prompt.as_bytes()), PyBytes::new(py, output.as_bytes())))
    }

    fn take_sampled(&mut self) -> Vec<Vec<u64>> {
        self.sampled.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl VllmBlockNumbers {
    /// Returns the numbers of the blocks of a prompt and of the blocks after it, as JSON. Blocks of
    /// the prompt without a hash get unique numbers.
    fn number(&mut self, hashes: &[(u64, usize)], num_prompt: usize) -> (String, String) {
        let numbers = hashes.iter().map(|&(hash, num_samples)| self.number_of(hash, num_samples));
        let mut numbers: Vec<u64> = numbers.collect();
        while numbers.len() < num_prompt {
            numbers.push(self.new_number());
        }
        let (prompt, output) = numbers.split_at(num_prompt);
        (json(prompt), json(output))
    }

    fn number_of(&mut self, hash: u64, num_samples: usize) -> u64 {
        if let Some(&number) = self.young.get(&hash) {
            return number;
        }
        let number = match self.old.remove(&hash) {
            Some(number) => number,
            None => self.new_sampled(num_samples),
        };
        if self.young.len() == self.per_generation {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, number);
        number
    }

    fn new_sampled(&mut self, num_samples: usize) -> u64 {
        let number = self.new_number();
        if let (Some(sampled), Some(place)) = (&mut self.sampled, num_samples.checked_sub(1)) {
            let num_lists = sampled.len().max(num_samples);
            sampled.resize(num_lists, Vec::new());
            sampled[place].push(number);
        }
        number
    }

    fn new_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

fn json(numbers: &[u64]) -> String {
    let mut text = String::with_capacity(2 + 8 * numbers.len());
    text.push('[');
    for (index, number) in numbers.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}{number}").unwrap_or_else(|_| unreachable!("a String grows"));
    }
    text.push(']');
    text
}
