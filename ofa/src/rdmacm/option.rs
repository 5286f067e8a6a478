//! Options of an identifier (rdma_set_option(3)), and the connection policy that they make. Plain
//! values.

use std::time::Duration;

use ual_cm::{Policies, Policy, Sharing};

use crate::errno::{EINVAL, Errno};

/// A refused connection is tried again for this long, unless the configuration's `refused_ms` sets
/// another time. Otherwise clients would miss a server that opens anew between two connections.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// IB: 4.096 us times a power of two.
const ACK_TIMEOUT_UNIT: Duration = Duration::from_nanos(4096);
/// Transmissions before a peer is given up (IB: 7 retries).
const TRANSMISSIONS: u32 = 8;
/// TCP's own acknowledgement time on a bad path.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// The options of an identifier.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    /// Type of service (RFC 2474).
    tos: Option<u8>,
    ack_timeout: Option<u8>,
    /// How the address is shared.
    pub(super) sharing: Sharing,
}

/// A change of an option.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Tos(u8),
    AckTimeout(u8),
    ReuseAddress(bool),
    V6Only(bool),
}

impl Options {
    /// Changes an option; those of the address only before it is `bound`.
    pub(super) fn set(&mut self, change: Change, bound: bool) -> Result<(), Errno> {
        match change {
            Change::Tos(tos) => self.tos = Some(tos),
            // Five bits; 0: no limit.
            Change::AckTimeout(exponent) if exponent < 32 => self.ack_timeout = Some(exponent),
            Change::AckTimeout(_) => return Err(EINVAL),
            _ if bound => return Err(EINVAL),
            Change::ReuseAddress(on) => self.sharing.address = on,
            Change::V6Only(on) => self.sharing.v6_only = on,
        }
        Ok(())
    }

    /// The exponent of IB's acknowledgement time-out, as it was set.
    pub(super) fn ack_timeout(&self) -> Option<u8> {
        self.ack_timeout
    }

    /// The policy of a connection.
    pub(super) fn policy(&self, base: &Policy) -> Policy {
        let mut policy = base.clone();
        if policy.refused_for.is_zero() {
            policy.refused_for = REFUSED_FOR;
        }
        if let Some(tos) = self.tos {
            // The two bits below are for congestion notification.
            policy.dscp = tos >> 2;
        }
        policy.user_timeout = match self.ack_timeout {
            None => policy.user_timeout,
            Some(0) => None,
            Some(exponent) => {
                let once = ACK_TIMEOUT_UNIT.saturating_mul(1 << exponent);
                Some(once.saturating_mul(TRANSMISSIONS).max(LEAST_TIMEOUT))
            }
        };
        policy
    }

    /// The policies of a listener.
    pub(super) fn policies(&self, base: &Policies) -> Policies {
        let mut policies = base.clone();
        policies.default = self.policy(&policies.default);
        for (_, policy) in &mut policies.peers {
            *policy = self.policy(policy);
        }
        policies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_change_the_policy_of_connections() {
        let mut options = Options::default();
        let base = Policy::default();
        assert_eq!(options.policy(&base).refused_for, REFUSED_FOR);
        options.set(Change::Tos(0xb8), true).unwrap();
        options.set(Change::AckTimeout(20), true).unwrap();
        let policy = options.policy(&base);
        assert_eq!(policy.dscp, 46);
        assert_eq!(policy.user_timeout, Some(ACK_TIMEOUT_UNIT * (1 << 23)));
        assert_eq!(options.set(Change::AckTimeout(32), true), Err(EINVAL));
        assert_eq!(options.set(Change::V6Only(true), true), Err(EINVAL));
        options.set(Change::V6Only(true), false).unwrap();
        assert!(options.sharing.v6_only);
        let own = Policy { refused_for: Duration::from_millis(1), ..base };
        assert_eq!(options.policy(&own).refused_for, Duration::from_millis(1));
    }
}
