//! Replaces the block hashes of a server's requests in a recording by numbers.

use std::fmt::Write;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

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
}

#[pymethods]
impl VllmBlockNumbers {
    #[new]
    #[pyo3(signature = (per_generation=PER_GENERATION))]
    fn new(per_generation: usize) -> PyResult<Self> {
        if per_generation == 0 {
            return Err(PyValueError::new_err("per_generation is 0; it must be at least 1"));
        }
        Ok(Self {
            mixer: RandomState::default(),
            young: HashMap::default(),
            old: HashMap::default(),
            per_generation,
            next: 0,
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
        let mixed = hashes.iter().take(num_known).map(|hash| {
            let hash = hash.cast::<PyBytes>()?;
            Ok(self.mixer.hash_one(hash.as_bytes()))
        });
        let mixed = mixed.collect::<PyResult<Vec<u64>>>()?;
        let (prompt, output) = contained(py, || Ok(py.detach(|| self.number(&mixed, num_prompt))))?;
        Ok((PyBytes::new(py, prompt.as_bytes()), PyBytes::new(py, output.as_bytes())))
    }
}

impl VllmBlockNumbers {
    /// Returns the numbers of the blocks of a prompt and of the blocks after it, as JSON. Blocks of
    /// the prompt without a hash get unique numbers.
    fn number(&mut self, hashes: &[u64], num_prompt: usize) -> (String, String) {
        let mut numbers: Vec<u64> = hashes.iter().map(|&hash| self.number_of(hash)).collect();
        while numbers.len() < num_prompt {
            numbers.push(self.new_number());
        }
        let (prompt, output) = numbers.split_at(num_prompt);
        (json(prompt), json(output))
    }

    fn number_of(&mut self, hash: u64) -> u64 {
        if let Some(&number) = self.young.get(&hash) {
            return number;
        }
        let number = match self.old.remove(&hash) {
            Some(number) => number,
            None => self.new_number(),
        };
        if self.young.len() == self.per_generation {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, number);
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
