//! Macros that call entries of a provider's function tables.

use super::super::grow;
use super::super::types::Sized32;
use crate::{VpError, VpResult, VpStatus};

/// Calls an entry whose last argument is the error.
macro_rules! verb {
    ($entry:expr, $name:expr $(, $arg:expr)+) => {
        match $entry {
            None => Err(crate::abi::import::calls::missing($name)),
            Some(f) => {
                let mut error = <crate::abi::types::Error as crate::abi::types::Sized32>::blank();
                // SAFETY: the provider's function; handles are alive as long as their owners, and
                // arguments are as the header demands.
                let code = unsafe { f($($arg,)+ &raw mut error) };
                crate::abi::text::outcome(code, &error)
            }
        }
    };
}
pub(super) use verb;

/// Calls an entry that returns only a status.
macro_rules! quick {
    ($entry:expr $(, $arg:expr)+) => {
        match $entry {
            None => Err(crate::VpStatus::Unsupported),
            Some(f) => {
                // SAFETY: as in `verb!`.
                let code = unsafe { f($($arg),+) };
                crate::abi::import::calls::short(code)
            }
        }
    };
}
pub(super) use quick;

/// The provider's table, if it has all required entries.
macro_rules! table_of {
    ($made:expr, $handle:ident, $table:literal: $($entry:ident)+) => {{
        // SAFETY: a table as the header demands, or null.
        let ops = unsafe { crate::abi::import::calls::table($made.ops, $table) };
        match ops {
            Ok(_) if $made.$handle.is_null() => Err(crate::abi::import::calls::no_handle($table)),
            Ok(ops) if ops.reserved != 0 => Err(crate::abi::import::calls::reserved($table)),
            $(Ok(ops) if ops.$entry.is_none() => {
                Err(crate::abi::import::calls::lacks($table, stringify!($entry)))
            })+
            other => other,
        }
    }};
}
pub(super) use table_of;

pub(super) fn short(code: u32) -> Result<(), VpStatus> {
    match code {
        super::super::codes::OK => Ok(()),
        code => Err(super::super::codes::status(code).unwrap_or(VpStatus::NoStatus(code))),
    }
}

pub(super) fn missing(entry: &str) -> VpError {
    VpError::new(VpStatus::Unsupported, format!("the provider does not have {entry}"))
}

pub(super) fn defect(what: impl Into<String>) -> VpError {
    VpError::new(VpStatus::Defect, what)
}

pub(super) fn no_handle(table: &str) -> VpError {
    defect(format!("the provider returned no handle with its {table}"))
}

pub(super) fn reserved(table: &str) -> VpError {
    defect(format!("the reserved field of the provider's {table} must be zero"))
}

pub(super) fn lacks(table: &str, entry: &str) -> VpError {
    defect(format!("the provider's {table} lacks {entry}, which is required"))
}

/// # Safety
///
/// `from` is null, or points to a table as the header demands.
pub(super) unsafe fn table<T: Sized32>(from: *const T, name: &str) -> VpResult<T> {
    if from.is_null() {
        return Err(defect(format!("the provider returned no {name}")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { grow::read(from) })
}
