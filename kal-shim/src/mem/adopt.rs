//! Memory that exists: a value is given, its octets are registered, and it is given back.
//!
//! The region owns the value, in a box that does not move. From the moment that the value has named its
//! octets until it is given back no code touches it, so it cannot move or free them.

use std::any::{Any, TypeId};
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Memory, Origin, Region};

/// A boxed value whose octets a region owns.
pub(super) struct Adopted {
    /// From `Box::into_raw`; `None` once it is given back.
    value: Option<NonNull<dyn Any + Send>>,
    /// Its type, which can be asked without touching it.
    kind: TypeId,
}

impl Drop for Adopted {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            // SAFETY: from `Box::into_raw` in `adopt`, taken out once; the region goes, so no code has
            // its octets any more.
            drop(unsafe { Box::from_raw(value.as_ptr()) });
        }
    }
}

impl Region {
    /// The octets of `value`, which stays alive and untouched until it is given back
    /// ([`Region::give_back`]) or the region goes.
    pub fn adopt<T: AsMut<[u8]> + Send + 'static>(value: T) -> Self {
        let raw = Box::into_raw(Box::new(value));
        let any: *mut (dyn Any + Send) = raw;
        // Owns the box already, should `as_mut` panic.
        let adopted = Adopted { value: NonNull::new(any), kind: TypeId::of::<T>() };
        // SAFETY: the box is alive and ours alone. `T` is `'static`, so this borrow may last until we
        // touch the value again, which is when it is given back or dropped: all users of the octets are
        // gone then. It is what `Box::leak` and a later `Box::from_raw` would do.
        let octets: &'static mut [u8] = unsafe { &mut *raw }.as_mut();
        let (addr, len) = (NonNull::from(&mut *octets).cast(), octets.len());
        Self::of(addr, len, Origin::Adopted(adopted))
    }

    /// The value of [`Region::adopt`] back. Refused, without change, while other clones or ranges are
    /// about, or if it is none of this type.
    pub fn give_back<T: 'static>(self) -> Result<T, Self> {
        match &self.0.origin {
            Origin::Adopted(adopted) if adopted.kind == TypeId::of::<T>() => {}
            _ => return Err(self),
        }
        let mut memory = Arc::try_unwrap(self.0).map_err(Self)?;
        match take(&mut memory) {
            // SAFETY: from `Box::into_raw` of a `Box<T>`, as `kind` says; taken out once, and the last
            // user of the octets is gone.
            Some(value) => Ok(*unsafe { Box::from_raw(value.as_ptr().cast::<T>()) }),
            None => Err(Self(Arc::new(memory))),
        }
    }
}

fn take(memory: &mut Memory) -> Option<NonNull<dyn Any + Send>> {
    match &mut memory.origin {
        Origin::Adopted(adopted) => adopted.value.take(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_returned_when_it_is_no_longer_used() {
        let region = Region::adopt(b"hello".to_vec());
        region.write_at(0, b"J").unwrap();
        let range = region.mem_range();
        let region = region.give_back::<Vec<u8>>().unwrap_err();
        drop(range);
        let region = region.give_back::<Box<[u8]>>().unwrap_err();
        assert_eq!(region.give_back::<Vec<u8>>().unwrap(), b"Jello");
    }

    #[test]
    fn octets_inside_of_a_value_do_not_move() {
        let region = Region::adopt([1u8, 2, 3]);
        let mut out = [0; 3];
        region.clone().read_at(0, &mut out).unwrap();
        assert_eq!((out, region.len()), ([1, 2, 3], 3));
        assert_eq!(region.give_back::<[u8; 3]>().unwrap(), [1, 2, 3]);
    }

    #[test]
    fn a_value_is_dropped_with_its_region() {
        struct Counted(#[expect(dead_code, reason = "it counts")] Arc<()>, Vec<u8>);
        impl AsMut<[u8]> for Counted {
            fn as_mut(&mut self) -> &mut [u8] {
                &mut self.1
            }
        }
        let alive = Arc::new(());
        let region = Region::adopt(Counted(alive.clone(), vec![0; 8]));
        let range = region.mem_range();
        drop(region);
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(range);
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
