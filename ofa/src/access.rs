//! Conversion of libibverbs' access flags to the access layer's rights. Plain values.

use ibv_sys::*;
use vp_api::Access;

use crate::errno::{EINVAL, EOPNOTSUPP, Errno};

/// The flags that have a right here.
const RIGHTS: [(u32, Access); 5] = [
    (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
    (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
    (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
    (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
    (IBV_ACCESS_MW_BIND, Access::BIND),
];

/// What no device here announces: paging on demand, and flushes for persistent memory (rdma-core 43).
const UNSUPPORTED: u32 = IBV_ACCESS_ON_DEMAND | 1 << 8 | 1 << 9;

/// Flags without effect: huge pages need nothing.
const IGNORED: u32 = IBV_ACCESS_HUGETLB;

fn rights(flags: u32) -> Access {
    let named = RIGHTS.iter().filter(|(flag, _)| flags & flag != 0);
    named.fold(Access::empty(), |all, (_, right)| all | *right)
}

/// Rights of a region. Local read is always granted (ibv_reg_mr(3)).
///
/// # Errors
/// EINVAL: remote write without local write, or an unknown flag. EOPNOTSUPP: flags of capabilities that the device does
/// not announce.
pub(crate) fn of_region(flags: u32) -> Result<Access, Errno> {
    let needed = flags & (IBV_ACCESS_OPTIONAL_FIRST - 1);
    let known = RIGHTS.iter().fold(IGNORED | IBV_ACCESS_ZERO_BASED, |all, (flag, _)| all | flag);
    let access = rights(needed) | Access::LOCAL_READ;
    match needed & !known {
        _ if !access.valid_for_region() => Err(EINVAL),
        0 => Ok(access),
        unknown if unknown & !UNSUPPORTED == 0 => Err(EOPNOTSUPP),
        _ => Err(EINVAL),
    }
}

/// Rights that peers may use through a queue pair.
pub(crate) fn of_peers(flags: u32) -> Access {
    rights(flags) & Access::REMOTE
}

/// Rights of a window: remote ones only.
pub(crate) fn of_window(flags: u32) -> Access {
    rights(flags) & Access::REMOTE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_writes_need_the_local_right() {
        assert_eq!(of_region(0), Ok(Access::LOCAL_READ));
        assert_eq!(of_region(IBV_ACCESS_REMOTE_WRITE), Err(EINVAL));
        assert_eq!(of_region(IBV_ACCESS_REMOTE_ATOMIC), Err(EINVAL));
        let all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        assert!(of_region(all | IBV_ACCESS_OPTIONAL_FIRST | IBV_ACCESS_HUGETLB).is_ok());
        assert_eq!(of_region(1 << 12), Err(EINVAL));
        assert_eq!(of_region(all | IBV_ACCESS_ON_DEMAND), Err(EOPNOTSUPP));
        assert_eq!(of_region(all | UNSUPPORTED), Err(EOPNOTSUPP));
        assert_eq!(of_region(IBV_ACCESS_REMOTE_WRITE | UNSUPPORTED), Err(EINVAL));
        assert_eq!(of_window(all), Access::REMOTE_READ | Access::REMOTE_WRITE);
    }
}
