//! How long a block has been free, in epochs, as far as it is told apart.

use super::block_meta::CLASSES;

/// Epochs that ages are told apart by: as many blocks become cached in them as four pools have.
pub(crate) const AGES: usize = 64;

/// Something of each class and age.
pub(crate) type Values = [[f32; AGES]; CLASSES];
