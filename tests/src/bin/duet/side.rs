//! One process of `duet`: its adapter, and its options. Plain values.

use itapi::{Crc, Error, Ia, PeerToPeer, Policy};

/// Why a case failed.
#[derive(Debug)]
pub(crate) struct Fail(pub(crate) String);

impl From<String> for Fail {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Fail {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// Result of a case.
pub(crate) enum Seen {
    /// It conforms to the standards.
    Ok(String),
    /// It deviates, but ran to its end.
    Differs(String),
}

impl Seen {
    pub(crate) fn ok(text: &str) -> Self {
        Self::Ok(text.into())
    }
}

/// Adapter and options.
pub(crate) struct Side {
    pub(crate) ia: Ia,
    /// The provider implements iWARP itself, so its events show what crossed the wire.
    pub(crate) is_ours: bool,
    /// Cases to leave out, in both directions.
    pub(crate) without: Vec<String>,
}

impl Side {
    /// Removes the options from the arguments.
    pub(crate) fn open(args: &mut Vec<String>) -> Result<Self, Fail> {
        let name = option(args, "--ia")?.unwrap_or_else(|| "vp_softrdma".into());
        let without = option(args, "--without")?.unwrap_or_default();
        let without = without.split(',').map(str::to_owned).collect();
        let profile = match option(args, "--profile")? {
            None => None,
            Some(name) => {
                let known = Policy::profile(&name);
                Some(known.ok_or_else(|| format!("there is no profile {name:?}"))?)
            }
        };
        let (crc, mpa) = (option(args, "--crc")?, option(args, "--mpa")?);
        let rtr = option(args, "--rtr")?;
        let change = move |policy: &mut Policy| {
            if let Some(profile) = profile {
                *policy = profile;
            }
            // A guest without KVM on a busy machine may need longer than the policy's 10 s for a Reply: this
            // end would time out, and the other's accept would see a reset.
            policy.connect_timeout = warpline_patience::HANG;
            if let Some(crc) = crc {
                policy.crc = if crc == "on" { Crc::Require } else { Crc::Off };
            }
            if let Some(mpa) = mpa {
                policy.revision = if mpa == "1" { 1 } else { 2 };
            }
            if let Some(rtr) = rtr {
                let (write, read) = (rtr == "write", rtr == "read");
                policy.peer_to_peer = PeerToPeer { send: false, write, read };
            }
        };
        let ia = Ia::builder().device(name).policy(change).open()?;
        let is_ours = ia.provider() == "vp_softrdma";
        Ok(Self { ia, is_ours, without })
    }
}

/// Removes `name VALUE` and returns the value.
fn option(args: &mut Vec<String>, name: &str) -> Result<Option<String>, Fail> {
    let Some(at) = args.iter().position(|arg| arg == name) else { return Ok(None) };
    if at + 1 == args.len() {
        return Err(format!("{name} needs a value").into());
    }
    let value = args.remove(at + 1);
    args.remove(at);
    Ok(Some(value))
}

/// The case of a request: its private data up to the first octet 0.
pub(crate) fn name_in(private_data: &[u8]) -> String {
    let name = private_data.split(|octet| *octet == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
