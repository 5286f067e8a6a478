//! Multicast groups: the queue pairs that get the datagrams of a group, and the socket that receives these.
//!
//! Owner: the engine. A group has one socket in each process, bound to the group's address, which has joined the group
//! on all interfaces; the kernel gives each process a copy, also those of other users. The table's lock is shared by
//! the threads that receive, and held while a queue pair takes a datagram; the list of sockets is not changed under it.
//! Who dies leaves its groups. Full: no more than [`MAX_GROUPS`] groups, and [`MAX_MEMBERS`] queue pairs in one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard, Weak};

use kal_os::lock;
use vp_api::{VpError, VpResult, VpStatus, room};

use super::{Engine, Served, Socket};
use crate::limits::{MAX_GROUPS, MAX_MEMBERS};
use crate::path;

/// The attached queue pairs of a group, with their numbers.
type Members = Vec<(u32, Weak<dyn Served>)>;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Groups {
    /// Held while a group is joined or left.
    changing: Mutex<()>,
    all: RwLock<BTreeMap<IpAddr, Members>>,
}

impl Groups {
    /// Calls `with` for each attached queue pair.
    pub(super) fn each(&self, group: IpAddr, with: impl FnMut(Arc<dyn Served>)) {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let members = all.get(&group).into_iter().flatten();
        members.filter_map(|(_, qp)| qp.upgrade()).for_each(with);
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<IpAddr, Members>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to a group that there is; false: there is none.
    fn add(&self, group: IpAddr, number: u32, qp: &Weak<dyn Served>) -> VpResult<bool> {
        let mut all = self.write();
        let groups = all.len();
        match all.get_mut(&group) {
            None if groups >= MAX_GROUPS => Err(full("multicast groups of a process", MAX_GROUPS)),
            None => Ok(false),
            Some(members) if members.iter().any(|(known, _)| *known == number) => Ok(true),
            Some(members) if members.len() >= MAX_MEMBERS => {
                Err(full("queue pairs of a multicast group", MAX_MEMBERS))
            }
            Some(members) => push(members, number, qp.clone()).map(|()| true),
        }
    }
}

fn push(members: &mut Members, number: u32, qp: Weak<dyn Served>) -> VpResult<()> {
    room::push(members, "queue pairs of a multicast group", (number, qp))
}

fn full(what: &str, most: usize) -> VpError {
    let detail = format!("there are {most} {what} already, which is the limit");
    VpError::new(VpStatus::InsufficientResources, detail)
}

impl Engine {
    /// Delivers what is sent to the group to this queue pair, too.
    pub(crate) fn attach(&self, group: IpAddr, number: u32, qp: Weak<dyn Served>) -> VpResult<()> {
        let _changing = lock(&self.groups.changing);
        if self.groups.add(group, number, &qp)? {
            return Ok(());
        }
        let mut members = Members::new();
        push(&mut members, number, qp)?;
        let socket = Arc::new(Socket::of_group(group, &path::ports()?)?);
        self.groups.write().insert(group, members);
        self.sockets.write().unwrap_or_else(PoisonError::into_inner).push(socket);
        // So that the engine's thread polls the new socket.
        self.wake();
        Ok(())
    }

    /// The inverse, for one group or all. False if it was not attached.
    pub(crate) fn detach(&self, group: Option<IpAddr>, number: u32) -> bool {
        let _changing = lock(&self.groups.changing);
        let (mut found, mut left) = (false, Vec::new());
        self.groups.write().retain(|of, members| {
            if group.is_none_or(|group| group == *of) {
                let before = members.len();
                members.retain(|(known, _)| *known != number);
                found |= members.len() < before;
            }
            if members.is_empty() {
                left.push(*of);
            }
            !members.is_empty()
        });
        if !left.is_empty() {
            let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
            sockets.retain(|socket| !left.contains(&socket.local()));
            drop(sockets);
            self.wake();
        }
        found
    }
}
