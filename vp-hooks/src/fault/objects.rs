//! The objects of an RNIC, numbered in the order of creation. Owned by the hook, under a lock. Stored in B-trees,
//! which grow by small allocations.

use std::collections::BTreeMap;

use crate::verb::{Kind, Object};

/// The present objects, and how many were ever created.
#[derive(Default)]
pub(super) struct Objects {
    numbers: BTreeMap<Object, u32>,
    made: BTreeMap<Kind, u32>,
    there: BTreeMap<Kind, u32>,
}

impl Objects {
    pub(super) fn add(&mut self, object: Object) {
        let made = self.made.entry(object.kind).or_default();
        *made += 1;
        let number = *made;
        if self.numbers.insert(object, number).is_none() {
            *self.there.entry(object.kind).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, object: Object) {
        if self.numbers.remove(&object).is_some() {
            *self.there.entry(object.kind).or_default() -= 1;
        }
    }

    /// A changed object keeps its number.
    pub(super) fn rename(&mut self, object: Object, to: Object) {
        if let Some(number) = self.numbers.remove(&object) {
            self.numbers.insert(to, number);
        }
    }

    /// The number of an object, from 1.
    pub(super) fn number(&self, object: Object) -> Option<u32> {
        self.numbers.get(&object).copied()
    }

    /// How many objects of a kind exist.
    pub(super) fn count(&self, kind: Kind) -> u32 {
        self.there.get(&kind).copied().unwrap_or(0)
    }
}
