//! Conversion of IT-API privileges and addressing modes to verbs access rights. No state.

use ual::vp_api::{Access, Addressing, Capabilities, RnicAttrs};

use super::check_bits;
use super::failure::{Failure, Outcome};
use super::status;
use super::types::*;

const RIGHTS: [(it_mem_priv_t, Access); 5] = [
    (IT_PRIV_LOCAL_READ, Access::LOCAL_READ),
    (IT_PRIV_LOCAL_WRITE, Access::LOCAL_WRITE),
    (IT_PRIV_REMOTE_READ, Access::REMOTE_READ),
    (IT_PRIV_REMOTE_WRITE, Access::REMOTE_WRITE),
    (IT_PRIV_ATOMIC, Access::REMOTE_ATOMIC),
];

fn rights(privs: it_mem_priv_t) -> Outcome<Access> {
    check_bits(privs, IT_PRIV_ALL, status::IT_ERR_INVALID_PRIVS, "privs")?;
    Ok(RIGHTS.iter().filter(|(bit, _)| privs & bit != 0).map(|(_, right)| *right).collect())
}

/// The rights of a region. Windows may always be linked to one with absolute addresses.
pub(crate) fn of_region(privs: it_mem_priv_t, addressing: Addressing) -> Outcome<Access> {
    let access = rights(privs)?;
    if !access.valid_for_region() {
        let text = format!(
            "privs {privs:#x} do not go together: remote read needs local read, remote write local \
             write, atomics both, and one local right must be there"
        );
        return Err(Failure::new(status::IT_ERR_INVALID_PRIVS, text));
    }
    let bind = if addressing == Addressing::Absolute { Access::BIND } else { Access::empty() };
    Ok(access | bind)
}

/// The rights of a window: remote ones; local ones come with the region.
pub(crate) fn of_window(privs: it_mem_priv_t) -> Outcome<Access> {
    let access = rights(privs)? & Access::REMOTE;
    if access.is_empty() {
        let text = format!("privs {privs:#x} grant nothing to a peer, so nothing can be linked");
        return Err(Failure::new(status::IT_ERR_INVALID_PRIVS, text));
    }
    Ok(access)
}

/// As C's constants.
pub(crate) fn to_c(access: Access) -> it_mem_priv_t {
    RIGHTS.iter().filter(|(_, right)| access.contains(*right)).fold(0, |all, (bit, _)| all | bit)
}

/// The addressing of a region or window.
pub(crate) fn addressing(mode: it_addr_mode_t, most: &RnicAttrs) -> Outcome<Addressing> {
    match mode {
        IT_ADDR_MODE_ABSOLUTE => Ok(Addressing::Absolute),
        IT_ADDR_MODE_RELATIVE if most.capabilities.contains(Capabilities::ZERO_BASED) => {
            Ok(Addressing::ZeroBased)
        }
        _ => Err(Failure::new(
            status::IT_ERR_INVALID_ADDR_MODE,
            format!("addr_mode is {mode}, which does not exist or which this adapter cannot do"),
        )),
    }
}

/// As C's constants.
pub(crate) fn mode(addressing: Addressing) -> it_addr_mode_t {
    match addressing {
        // C has no mode for a base, and no region of this face has one.
        Addressing::Absolute | Addressing::Based(_) => IT_ADDR_MODE_ABSOLUTE,
        Addressing::ZeroBased => IT_ADDR_MODE_RELATIVE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_go_there_and_back() {
        for privs in 0..=IT_PRIV_ALL {
            match of_region(privs, Addressing::Absolute) {
                Ok(access) => assert_eq!(to_c(access), privs),
                Err(refused) => assert_eq!(refused.status, status::IT_ERR_INVALID_PRIVS),
            }
        }
        assert!(of_region(IT_PRIV_ALL + 1, Addressing::Absolute).is_err());
        assert!(
            of_region(IT_PRIV_REMOTE_WRITE | IT_PRIV_LOCAL_READ, Addressing::Absolute).is_err()
        );
        let windows = of_window(IT_PRIV_LOCAL | IT_PRIV_REMOTE_READ).unwrap();
        assert_eq!(windows, Access::REMOTE_READ);
        assert!(of_window(IT_PRIV_LOCAL).is_err());
    }
}
