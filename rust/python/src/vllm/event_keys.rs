//! The extra keys of blocks in events: the adapter's name, `(identifier, offset)` of
//! each multimodal input, and the cache salt.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use kvoxide_core::StoredEvent;

/// Returns the keys of each block of an event, for a request without prompt embeddings. Returns
/// `None` if no block has any. A block's hash covers `num_lookahead_tokens` tokens after the block.
pub(super) fn event_keys<'py>(
    request: &Bound<'py, PyAny>,
    event: &StoredEvent,
    num_lookahead_tokens: usize,
) -> PyResult<Option<Vec<Option<Bound<'py, PyTuple>>>>> {
    let (py, starts) = (request.py(), &event.block_starts);
    let mut features = Features::of(request, event)?;
    let salt = truthy(request.getattr(intern!(py, "cache_salt"))?)?;
    let salt = salt.filter(|_| starts.first() == Some(&0));
    let lora = truthy(request.getattr(intern!(py, "lora_request"))?)?;
    let lora = lora.map(|lora| lora.getattr(intern!(py, "lora_name"))).transpose()?;
    let of_every_block = lora.as_ref().map(|name| PyTuple::new(py, [name])).transpose()?;
    if features.is_none() && salt.is_none() {
        return Ok(of_every_block.map(|keys| vec![Some(keys); starts.len()]));
    }
    let mut of_block = |start: usize| {
        let mut keys: Vec<_> = lora.iter().cloned().collect();
        if let Some(features) = &mut features {
            let end = start + event.block_size;
            features.add_keys(start, end, end + num_lookahead_tokens, &mut keys)?;
        }
        keys.extend(salt.iter().filter(|_| start == 0).cloned());
        match keys.len() {
            0 => Ok(None),
            1 if lora.is_some() => Ok(of_every_block.clone()),
            _ => PyTuple::new(py, keys).map(Some),
        }
    };
    starts.iter().map(|&start| of_block(start)).collect::<PyResult<_>>().map(Some)
}

/// Returns the multimodal input at which the search for the keys of an event's blocks starts.
pub(super) fn first_feature(request: &Bound<'_, PyAny>, event: &StoredEvent) -> PyResult<usize> {
    Ok(Features::of(request, event)?.map_or(0, |features| features.next))
}

/// Returns the value if Python counts it as true.
pub(super) fn truthy(value: Bound<'_, PyAny>) -> PyResult<Option<Bound<'_, PyAny>>> {
    Ok(value.is_truthy()?.then_some(value))
}

/// The multimodal inputs of a request, walked from block to block.
struct Features<'py> {
    features: Bound<'py, PyAny>,
    len: usize,
    /// End of the last input.
    end: isize,
    /// The first input that has not been passed.
    next: usize,
}

impl<'py> Features<'py> {
    fn of(request: &Bound<'py, PyAny>, event: &StoredEvent) -> PyResult<Option<Self>> {
        let features = request.getattr(intern!(request.py(), "mm_features"))?;
        let Some(features) = truthy(features)? else { return Ok(None) };
        let mut features = Self { len: features.len()?, features, end: 0, next: 0 };
        (_, _, features.end) = features.get(features.len - 1)?;
        if event.is_partial {
            features.skip_before(event.start_token)?;
        }
        Ok(Some(features))
    }

    /// Returns an input, its start and its end.
    fn get(&self, index: usize) -> PyResult<(Bound<'py, PyAny>, isize, isize)> {
        let py = self.features.py();
        let feature = self.features.get_item(index)?;
        let position = feature.getattr(intern!(py, "mm_position"))?;
        let offset: isize = position.getattr(intern!(py, "offset"))?.extract()?;
        let length: isize = position.getattr(intern!(py, "length"))?.extract()?;
        Ok((feature, offset, offset + length))
    }

    /// Passes the inputs before a token in the same way as vLLM does for a partial block: by
    /// bisection. If inputs overlap, this finds other inputs than a walk.
    fn skip_before(&mut self, token: usize) -> PyResult<()> {
        let mut end = if self.end > token as isize { self.len } else { 0 };
        while self.next < end {
            let middle = (self.next + end) / 2;
            match self.get(middle)?.2 <= token as isize {
                true => self.next = middle + 1,
                false => end = middle,
            }
        }
        Ok(())
    }

    /// Adds the keys of one block. The block must not be before the block of the last call.
    fn add_keys(
        &mut self,
        start: usize,
        end: usize,
        hash_end: usize,
        keys: &mut Vec<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let (start, end, hash_end) = (start as isize, end as isize, hash_end as isize);
        while self.end > start && self.next < self.len {
            let (feature, first, behind) = self.get(self.next)?;
            if hash_end <= first {
                break;
            }
            if start < behind {
                let identifier = feature.getattr(intern!(feature.py(), "identifier"))?;
                keys.push((identifier, first - start).into_pyobject(feature.py())?.into_any());
                if hash_end < behind {
                    break;
                }
            }
            self.next += 1;
        }
        // Inputs that the lookahead tokens passed may extend into the next block.
        while hash_end > end && self.next > 0 && self.get(self.next - 1)?.2 > end {
            self.next -= 1;
        }
        Ok(())
    }
}
