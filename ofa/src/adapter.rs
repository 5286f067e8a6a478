//! An open device: the RNIC, its connection manager, and the directory of its objects. One per process
//! and device, opened by the first user; it ends, with its threads, when the last object that uses it is
//! destroyed.
//!
//! Any thread. Asynchronous events and ends of connections are delivered by the connection manager's
//! thread, or by a caller that does its work. After fork a child opens its own: what it inherited
//! belongs to the parent.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use ual::observe::{self, Face, Names};
use ual_cm::{Cm, Connectee, Sequence};
use vp_api::{QpId, Rnic, RnicAttrs};

use crate::device::{self, Device};
use crate::directory::Directory;
use crate::errno::Errno;
use crate::fork;
use crate::qp_numbers::QpNumbers;
use crate::rendezvous::Points;

/// An open device.
pub struct Adapter {
    device: &'static Device,
    // Before the RNIC: its threads use it.
    cm: Cm,
    rnic: Arc<dyn Rnic>,
    directory: Arc<Directory>,
    numbers: QpNumbers,
    points: Points,
    generation: u32,
}

impl Adapter {
    pub(crate) fn start(
        device: &'static Device,
        rnic: Arc<dyn Rnic>,
        config: &ual::Config,
    ) -> Result<Arc<Self>, Errno> {
        let names = Names { face: Face::Verbs, provider: device.provider(), device: device.name() };
        let (rnic, observed) = observe::adapter(&config.observe, &names, rnic);
        let sequence = Sequence::default();
        let directory = Arc::new(Directory::new(sequence.clone()));
        let (policies, rules) = config.governing(device.provider(), device.name());
        let cm = Cm::start_observed(&rnic, policies, rules, directory.clone(), sequence, observed)?;
        let (numbers, generation) = (QpNumbers::new(), fork::generation());
        let points = Points::default();
        Ok(Arc::new(Self { device, cm, rnic, directory, numbers, points, generation }))
    }

    /// The adapter of the first device with this address; of the first device for an unspecified one, and for
    /// a loopback address that no device has. For datagrams, of those that have them. A device that is the only one of
    /// which the program has opened a context comes first: its program names devices by ibv_open_device(3).
    ///
    /// # Errors
    /// ENODEV: no device has it; and those of opening the device.
    pub fn for_address(address: IpAddr, datagrams: bool) -> Result<Arc<Self>, Errno> {
        let address = address.to_canonical();
        let all = device::all()?.iter().filter(|it| !datagrams || it.has_datagrams());
        let mut named = all.clone().filter(|device| device.has_context());
        let named = named.next().filter(|_| named.next().is_none());
        let mut devices = named.into_iter().chain(all);
        let any = address.is_unspecified() || address.is_loopback();
        let own = devices.clone().find(|device| device.has(address));
        own.or(devices.next().filter(|_| any)).ok_or(Errno(libc::ENODEV))?.open()
    }

    /// The device.
    pub fn device(&self) -> &'static Device {
        self.device
    }

    /// The open RNIC.
    pub fn rnic(&self) -> &dyn Rnic {
        &*self.rnic
    }

    /// Limits and capabilities.
    pub fn attrs(&self) -> &RnicAttrs {
        self.rnic.attrs()
    }

    /// Its connection manager.
    pub fn cm(&self) -> &Cm {
        &self.cm
    }

    /// The directory of its objects.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(crate) fn points(&self) -> &Points {
        &self.points
    }

    #[inline]
    pub(crate) fn numbers(&self) -> &QpNumbers {
        &self.numbers
    }

    /// From now on `party` gets the connection events of this queue pair.
    pub fn register(&self, qp: QpId, party: Weak<dyn Connectee>) {
        self.directory.set_connectee(qp, party);
    }

    /// Whether this process opened it; false if it was inherited.
    pub fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }
}
