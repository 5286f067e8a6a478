//! Limits on the private data of connection messages: those of MPA, or of a provider's own connection
//! manager. Plain data.

use vp_api::{ConnectionModel, RnicAttrs};

use crate::policy::Policy;

/// Octets of private data that applications may give to each message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrivateData {
    /// To a connection request.
    pub connect: usize,
    /// To its acceptance.
    pub accept: usize,
    /// To its rejection.
    pub reject: usize,
}

impl PrivateData {
    /// The same for each.
    pub(crate) fn all(most: usize) -> Self {
        Self { connect: most, accept: most, reject: most }
    }

    /// The limits of a device under a policy.
    pub(crate) fn of(attrs: &RnicAttrs, policy: &Policy) -> Self {
        let mpa = policy.max_private_data();
        if attrs.connection_model == ConnectionModel::LlpStream {
            return Self::all(mpa);
        }
        let most = |says: u32| if says == 0 { mpa } else { says as usize };
        Self {
            connect: most(attrs.max_private_connect),
            accept: most(attrs.max_private_accept),
            reject: most(attrs.max_private_reject),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_native_device_reports_its_own_limits() {
        let mut attrs = RnicAttrs::new("", "", ConnectionModel::Native);
        let policy = Policy::default();
        assert_eq!(PrivateData::of(&attrs, &policy), PrivateData::all(508));
        (attrs.max_private_connect, attrs.max_private_accept) = (53, 193);
        attrs.max_private_reject = 145;
        let expected = PrivateData { connect: 53, accept: 193, reject: 145 };
        assert_eq!(PrivateData::of(&attrs, &policy), expected);
        attrs.connection_model = ConnectionModel::LlpStream;
        assert_eq!(PrivateData::of(&attrs, &policy), PrivateData::all(508));
    }
}
