//! Memory of the simple peer: regions with keys, rights and a domain.

use super::faults::Fault;

pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;
pub(super) const ATOMIC: u8 = 4;

pub(super) struct Region {
    pub(super) key: u32,
    pub(super) base: u64,
    pub(super) rights: u8,
    pub(super) is_foreign: bool,
    pub(super) data: Vec<u8>,
}

/// The four regions that all connections have, then one for each connection.
pub(super) struct Memory(pub(super) Vec<Region>);

impl Default for Memory {
    fn default() -> Self {
        let region = |key, base, rights, is_foreign, octets| {
            let data = (0..octets).map(|at: usize| (at % 251) as u8).collect();
            Region { key, base, rights, is_foreign, data }
        };
        Self(vec![
            region(0x1001_0001, 0x10_0000, READ | WRITE | ATOMIC, false, 128 * 1024),
            region(0x1002_0002, 0x80_0000, READ, false, 0x800),
            region(0x1003_0003, 0x90_0000, WRITE, false, 0x1000),
            region(0x1004_0004, 0xa0_0000, READ | WRITE | ATOMIC, true, 0x1000),
        ])
    }
}

impl Memory {
    /// The region and the offset of an access.
    pub(super) fn find(
        &self,
        fault: Option<Fault>,
        (address, key, len): (u64, u32, usize),
        right: u8,
    ) -> Option<(usize, usize)> {
        let is = |fault_: Fault| fault == Some(fault_);
        let index = self.0.iter().position(|region| region.key == key);
        let index = index.or_else(|| is(Fault::KeyNotChecked).then_some(0))?;
        let region = &self.0[index];
        let more = u64::from(is(Fault::BoundsByOne));
        let offset = match address.checked_sub(region.base) {
            None if is(Fault::KeyNotChecked) => 0,
            offset => offset?,
        };
        let end = offset.checked_add(len as u64)?;
        let allowed = (region.rights & right == right || is(Fault::RightsNotChecked))
            && (!region.is_foreign || is(Fault::DomainNotChecked));
        (allowed && end <= region.data.len() as u64 + more).then_some((index, offset as usize))
    }

    pub(super) fn write(&mut self, (index, offset): (usize, usize), octets: &[u8]) {
        let data = &mut self.0[index].data;
        let end = data.len().min(offset + octets.len());
        if offset < end {
            data[offset..end].copy_from_slice(&octets[..end - offset]);
        }
    }

    pub(super) fn read(&self, (index, offset): (usize, usize), len: usize) -> Vec<u8> {
        let data = &self.0[index].data;
        (offset..offset + len).map(|at| data.get(at).copied().unwrap_or(0)).collect()
    }
}
