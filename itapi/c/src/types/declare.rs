//! Macros that declare the C types and check their layouts. No state.

/// A C structure, its size, and the offset of each member.
macro_rules! record {
    ($name:ident: $size:literal { $($at:literal $field:ident: $type:ty,)* }) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $at);)*
        };
        // SAFETY: `repr(C)`, and each member is plain, as the constant below has checked.
        unsafe impl $crate::ptr::Plain for $name {}
        const _: () = { $($crate::types::declare::plain::<$type>();)* };
    };
}

/// A C union and its size.
macro_rules! choice {
    ($name:ident: $size:literal { $($field:ident: $type:ty,)* }) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) union $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == 0);)*
        };
        // SAFETY: `repr(C)`, and each member is plain, as the constant below has checked.
        unsafe impl $crate::ptr::Plain for $name {}
        const _: () = { $($crate::types::declare::plain::<$type>();)* };
    };
}

/// Pointers that only name an object, each of its own type; never dereferenced.
macro_rules! opaque {
    ($($pointer:ident = *$tag:ident;)*) => {$(
        #[repr(C)]
        pub(crate) struct $tag {
            _opaque: [u8; 0],
        }
        pub(crate) type $pointer = *mut $tag;
    )*};
}

/// The type of an enumeration and its values.
macro_rules! numbers {
    ($name:ident { $($value:ident = $number:literal,)* }) => {
        pub(crate) type $name = u32;
        $(pub(crate) const $value: $name = $number;)*
        const _: () = assert!($crate::types::declare::distinct(&[$($value),*]));
    };
}

/// As `numbers!` for values that may be or-ed.
macro_rules! bits {
    ($name:ident { $($value:ident = $number:literal,)* }) => {
        numbers! { $name { $($value = $number,)* } }
        const _: () = assert!($crate::types::declare::single_bits(&[$($value),*]));
    };
}

/// Compiles for plain data only.
pub(crate) const fn plain<T: crate::ptr::Plain>() {}

pub(crate) const fn distinct(values: &[u32]) -> bool {
    let mut i = 0;
    while i < values.len() {
        let mut j = 0;
        while j < i {
            if values[i] == values[j] {
                return false;
            }
            j += 1;
        }
        i += 1;
    }
    true
}

pub(crate) const fn single_bits(values: &[u32]) -> bool {
    let mut i = 0;
    while i < values.len() {
        if values[i].count_ones() > 1 {
            return false;
        }
        i += 1;
    }
    true
}
