//! The syntax of the configuration file: sections, keys, their bounds. Plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{self, Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use vp_api::FpduSize;

use super::rules::RuleTable;
use super::{Log, Observe, Providers};
use ual_cm::{Crc, LocalStreams, Markers, Network, PeerToPeer, Policy, check_directory};

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) providers: Providers,
    pub(super) policy: PolicySection,
    pub(super) softrdma: SoftRdma,
    pub(super) rule: Vec<RuleTable>,
    pub(super) log: Log,
    pub(super) observe: Observe,
}

/// A number from `LOW` to `HIGH`.
#[derive(Clone, Copy)]
struct Within<const LOW: u64, const HIGH: u64>(u64);

impl<'de, const LOW: u64, const HIGH: u64> Deserialize<'de> for Within<LOW, HIGH> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_i64(Number::<LOW, HIGH>)
    }
}

/// Names the bounds, whatever is wrong.
struct Number<const LOW: u64, const HIGH: u64>;

impl<const LOW: u64, const HIGH: u64> Visitor<'_> for Number<LOW, HIGH> {
    type Value = Within<LOW, HIGH>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number between {LOW} and {HIGH}")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        let bounds = LOW..=HIGH;
        let within = u64::try_from(value).ok().filter(|value| bounds.contains(value));
        within.map(Within).ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
    }
}

/// Milliseconds, up to an hour.
type Ms = Within<1, 3_600_000>;
/// As `Ms`; 0 switches it off.
type OptionalMs = Within<0, 3_600_000>;

impl<const LOW: u64, const HIGH: u64> Within<LOW, HIGH> {
    fn ms(self) -> Duration {
        Duration::from_millis(self.0)
    }

    fn optional_ms(self) -> Option<Duration> {
        (self.0 > 0).then(|| self.ms())
    }
}

/// A named profile.
struct Profile(Policy);

impl<'de> Deserialize<'de> for Profile {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let name = String::deserialize(input)?;
        Policy::profile(&name).map(Self).ok_or_else(|| {
            let known = Policy::PROFILES.join("`, `");
            D::Error::custom(format!("there is no profile `{name}`; there are `{known}`"))
        })
    }
}

/// A directory that others cannot write to.
struct OwnDirectory(PathBuf);

impl<'de> Deserialize<'de> for OwnDirectory {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let path = PathBuf::deserialize(input)?;
        match check_directory(&path) {
            Ok(()) => Ok(Self(path)),
            Err(why) => Err(D::Error::custom(format!(
                "`{}` cannot be used: {why}; name a directory that belongs to this user, and that \
                 others cannot write to",
                path.display()
            ))),
        }
    }
}

/// Octets of a ring.
struct Ring(u32);

impl<'de> Deserialize<'de> for Ring {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let octets = u64::deserialize(input)?;
        match u32::try_from(octets) {
            Ok(ring) if Policy::LOCAL_RINGS.contains(&ring) => Ok(Self(ring)),
            _ => {
                let sizes = Policy::LOCAL_RINGS.map(|size| size.to_string()).join(", ");
                Err(D::Error::custom(format!("{octets} is not one of {sizes}")))
            }
        }
    }
}

/// The keys of a policy, each optional, and the sections that have them.
macro_rules! policy_keys {
    ($($key:ident: $type:ty),+ $(,)?) => {
        /// Keys of a policy; each changes one field.
        #[derive(Deserialize, Default)]
        #[serde(default, deny_unknown_fields, expecting = "a table of keys of a policy")]
        pub(super) struct PolicyKeys {
            profile: Option<Profile>,
            $($key: Option<$type>,)+
        }

        /// `[policy]`: the keys, and tables of keys for peers.
        #[derive(Deserialize, Default)]
        #[serde(default, deny_unknown_fields, expecting = "a table, `[policy]`")]
        struct PolicyTable {
            profile: Option<Profile>,
            $($key: Option<$type>,)+
            peers: BTreeMap<Network, PolicyKeys>,
        }

        impl From<PolicyTable> for PolicySection {
            fn from(table: PolicyTable) -> Self {
                let PolicyTable { profile, $($key,)+ peers } = table;
                Self { keys: PolicyKeys { profile, $($key,)+ }, peers }
            }
        }
    };
}

policy_keys! {
    crc: Crc,
    markers: Markers,
    revision: Within<1, 2>,
    negotiate_ird_ord: bool,
    peer_to_peer: PeerToPeer,
    fall_back: bool,
    extensions: bool,
    connect_timeout_ms: Ms,
    refused_ms: OptionalMs,
    request_timeout_ms: Ms,
    answer_timeout_ms: Ms,
    half_open: Within<1, 65_536>,
    invalid_stag_ends: Within<1, 1_000_000>,
    close_timeout_ms: Ms,
    keep_alive_ms: OptionalMs,
    keep_alive_interval_ms: Ms,
    keep_alive_count: Within<1, 127>,
    user_timeout_ms: OptionalMs,
    nudge_ms: OptionalMs,
    probe_ms: OptionalMs,
    local: LocalStreams,
    local_dir: OwnDirectory,
}

#[derive(Deserialize, Default)]
#[serde(from = "PolicyTable")]
pub(super) struct PolicySection {
    pub(super) keys: PolicyKeys,
    pub(super) peers: BTreeMap<Network, PolicyKeys>,
}

impl PolicyKeys {
    /// The policy that these keys make of `base`, or of their profile.
    pub(super) fn apply(self, base: Policy) -> Policy {
        let mut policy = self.profile.as_ref().map_or(base, |profile| profile.0.clone());
        let set = &mut policy;
        self.apply_times(set);
        assign(&mut set.crc, self.crc);
        assign(&mut set.markers, self.markers);
        assign(&mut set.revision, self.revision.map(|v| v.0 as u8));
        assign(&mut set.negotiate_ird_ord, self.negotiate_ird_ord);
        assign(&mut set.peer_to_peer, self.peer_to_peer);
        assign(&mut set.fall_back, self.fall_back);
        assign(&mut set.extensions, self.extensions);
        assign(&mut set.half_open, self.half_open.map(|v| v.0 as u32));
        assign(&mut set.invalid_stag_ends, self.invalid_stag_ends.map(|v| v.0 as u32));
        assign(&mut set.keep_alive_count, self.keep_alive_count.map(|v| v.0 as u32));
        assign(&mut set.local, self.local);
        assign(&mut set.local_dir, self.local_dir.map(|directory| Some(directory.0)));
        policy
    }

    fn apply_times(&self, set: &mut Policy) {
        assign(&mut set.connect_timeout, self.connect_timeout_ms.map(Within::ms));
        assign(&mut set.refused_for, self.refused_ms.map(|v| v.ms()));
        assign(&mut set.request_timeout, self.request_timeout_ms.map(Within::ms));
        assign(&mut set.answer_timeout, self.answer_timeout_ms.map(Within::ms));
        assign(&mut set.close_timeout, self.close_timeout_ms.map(Within::ms));
        assign(&mut set.keep_alive, self.keep_alive_ms.map(Within::optional_ms));
        assign(&mut set.keep_alive_interval, self.keep_alive_interval_ms.map(Within::ms));
        assign(&mut set.user_timeout, self.user_timeout_ms.map(Within::optional_ms));
        assign(&mut set.kick_after, self.nudge_ms.map(Within::optional_ms));
        assign(&mut set.probe_after, self.probe_ms.map(Within::optional_ms));
    }
}

/// `[softrdma]`: how the software provider uses TCP, memory and the processor.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields, expecting = "a table, `[softrdma]`")]
pub(super) struct SoftRdma {
    /// 0: follow the EMSS.
    fpdu_octets: Option<Within<0, 64_768>>,
    congestion: Option<String>,
    socket_buffer: Option<Within<4_096, 1_073_741_824>>,
    dscp: Option<Within<0, 63>>,
    spin_us: Option<Within<0, 1_000_000>>,
    local_ring: Option<Ring>,
    local_streams: Option<Within<0, 1_000_000>>,
}

impl SoftRdma {
    pub(super) fn apply(self, mut policy: Policy) -> Policy {
        let fpdu = |octets: u64| match octets {
            0 => FpduSize::Emss,
            octets => FpduSize::Octets(octets as u16),
        };
        let set = &mut policy;
        assign(&mut set.fpdu, self.fpdu_octets.map(|v| fpdu(v.0)));
        assign(&mut set.congestion, self.congestion.map(Some));
        assign(&mut set.socket_buffer, self.socket_buffer.map(|v| Some(v.0 as u32)));
        assign(&mut set.dscp, self.dscp.map(|v| v.0 as u8));
        assign(&mut set.spin, self.spin_us.map(|v| Duration::from_micros(v.0)));
        assign(&mut set.local_ring, self.local_ring.map(|ring| ring.0));
        assign(&mut set.local_streams, self.local_streams.map(|v| v.0 as u32));
        policy
    }
}

fn assign<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}
