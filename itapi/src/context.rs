//! The consumer context: a number that the application attaches to an object (IT-API
//! `it_set_consumer_context`). An atomic that lives with the object; any thread.

/// Gives a type its context, stored beside the object of the access layer.
macro_rules! context {
    ($type:ty, $object:ident => $tag:expr) => {
        impl $type {
            /// The number that [`Self::set_context`] stored, or 0 (`it_get_consumer_context`).
            pub fn context(&self) -> u64 {
                let $object = self;
                $tag.get()
            }

            /// Attaches a number to the object, e.g. an index into a table of the application; all clones of
            /// the handle return it (`it_set_consumer_context`).
            pub fn set_context(&self, number: u64) {
                let $object = self;
                $tag.set(number);
            }
        }
    };
}

pub(crate) use context;
