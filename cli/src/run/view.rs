//! The view of `warpline run`: a directory with the files that the kernel would show for the devices of SoftRDMA and RoCE
//! below `/sys` and `/dev`; a preloaded library redirects programs there. Made once for each content and never
//! changed, so that programs share it; it stays for later ones.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::process::getuid;
use ual::Ual;
use ual::gid::{self, Gids};
use ual::guid;
use ual::vp_api::{PortInfo, Transport};

use super::adapters::{self, Device};
use super::args::Shown;
use crate::error::{CliError, CliResult};

/// Entries of the view by path below its root.
type Tree = BTreeMap<PathBuf, Entry>;

#[derive(Hash)]
enum Entry {
    Text(String),
    /// A link to this.
    Link(&'static str),
}

/// Makes the view, unless it exists.
pub(super) fn directory(shown: Shown) -> CliResult<PathBuf> {
    let tree = tree(&ports()?, &adapters::own(shown));
    let mut hasher = DefaultHasher::new();
    tree.hash(&mut hasher);
    let base = base()?;
    let view = base.join(format!("{:016x}", hasher.finish()));
    if !view.exists() {
        make(&base, &view, &tree).map_err(|error| failed(&view, &error))?;
    }
    // As the kernel names the working directory of who is in it.
    fs::canonicalize(&view).map_err(|error| failed(&view, &error))
}

/// Makes a link to a directory beside the views, unless it exists.
pub(super) fn link(directory: &Path) -> CliResult<PathBuf> {
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    let link = base()?.join(format!("link-{:016x}", hasher.finish()));
    match symlink(directory, &link) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(&link, &error)),
        _ => Ok(link),
    }
}

fn failed(path: &Path, error: &io::Error) -> CliError {
    CliError::input(format!("cannot make {}: {error}", path.display()))
        .hint("set XDG_RUNTIME_DIR to a directory of your own")
}

/// A directory that only this user can access.
fn base() -> CliResult<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let place = runtime.map_or_else(std::env::temp_dir, PathBuf::from);
    let base = place.join(format!("warpline-view-{}", getuid().as_raw()));
    match fs::DirBuilder::new().mode(0o700).create(&base) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(&base, &error));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(&base).map_err(|error| failed(&base, &error))?;
    if found.is_dir() && found.uid() == getuid().as_raw() && found.mode() & 0o022 == 0 {
        return Ok(base);
    }
    let error = io::Error::other("it is there, and others may write to it");
    Err(failed(&base, &error))
}

/// Makes the view under a temporary name and renames it.
fn make(base: &Path, view: &Path, tree: &Tree) -> io::Result<()> {
    let part = base.join(format!("part-{}", std::process::id()));
    for (name, entry) in tree {
        let path = part.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match entry {
            Entry::Text(text) => fs::write(&path, format!("{text}\n"))?,
            Entry::Link(target) => symlink(target, &path)?,
        }
    }
    match fs::rename(&part, view) {
        // Another process has made the same view meanwhile.
        Err(_) if view.exists() => fs::remove_dir_all(&part),
        other => other,
    }
}

/// The interfaces of SoftRDMA, which are those of RoCE, too.
fn ports() -> CliResult<Vec<PortInfo>> {
    let ual = Ual::new().map_err(itapi::Error::from)?;
    let place = ual.known().iter().position(|(_, library)| library.is_none());
    let devices = place.and_then(|place| ual.list_at(place)).map(|listing| listing.devices);
    let devices = devices.and_then(Result::ok).unwrap_or_default();
    Ok(devices.into_iter().next().map(|device| device.ports).unwrap_or_default())
}

/// All names, for all devices.
fn tree(ports: &[PortInfo], devices: &[Device]) -> Tree {
    let mut tree = Tree::new();
    let text = |text: &str| Entry::Text(text.to_owned());
    tree.insert("sys/class/infiniband_verbs/abi_version".into(), text("6"));
    // Without it, programs of libibumad do not look for devices.
    tree.insert("sys/class/infiniband_mad/abi_version".into(), text("5"));
    tree.insert("dev/infiniband/rdma_cm".into(), Entry::Link("/dev/null"));
    for (index, Device { name, is_roce, interface }) in devices.iter().enumerate() {
        let own = |port: &&PortInfo| interface.as_ref().is_none_or(|it| port.interface == *it);
        let ports: Vec<PortInfo> = ports.iter().filter(own).cloned().collect();
        let device = PathBuf::from("sys/class/infiniband").join(name);
        for (file, entry) in of_device(&ports, index as u32, *is_roce) {
            tree.insert(device.join(file), entry);
        }
        let verbs = PathBuf::from(format!("sys/class/infiniband_verbs/uverbs{index}"));
        tree.insert(verbs.join("ibdev"), text(name));
        tree.insert(verbs.join("abi_version"), text("1"));
        // A character device that any user may open, which programs expect.
        tree.insert(format!("dev/infiniband/uverbs{index}").into(), Entry::Link("/dev/null"));
    }
    tree
}

/// Files of a device (Documentation/ABI/stable/sysfs-class-infiniband of the kernel).
fn of_device(ports: &[PortInfo], index: u32, roce: bool) -> Vec<(String, Entry)> {
    let text = |name: &str, text: &str| (name.to_owned(), Entry::Text(text.to_owned()));
    let is_up = ports.iter().any(|port| port.online && !port.addresses.is_empty());
    let (node_type, name, transport) = match roce {
        true => ("1: CA", "RoCE over UDP", Transport::InfiniBand),
        false => ("4: RNIC", "SoftRDMA", Transport::Iwarp),
    };
    let guid = in_groups(&guid::of(ports, index).to_be_bytes());
    let mut all = vec![
        text("node_type", node_type),
        text("node_desc", name),
        text("node_guid", &guid),
        text("sys_image_guid", &guid),
        text("fw_ver", env!("CARGO_PKG_VERSION")),
        text("hw_rev", "0"),
        text("board_id", name),
        text("hca_type", name),
        text("device/numa_node", "-1"),
        text("ports/1/state", if is_up { "4: ACTIVE" } else { "1: DOWN" }),
        text("ports/1/phys_state", if is_up { "5: LinkUp" } else { "3: Disabled" }),
        text("ports/1/link_layer", "Ethernet"),
        text("ports/1/rate", "10 Gb/sec (1X QDR)"),
        text("ports/1/lid", "0x0"),
        text("ports/1/lid_mask_count", "0"),
        text("ports/1/sm_lid", "0x0"),
        text("ports/1/sm_sl", "0"),
        text("ports/1/cap_mask", "0x00000000"),
        text("ports/1/pkeys/0", "0xffff"),
    ];
    let gids = Gids::of(ports, transport);
    for (index, gid) in gids.table().iter().enumerate() {
        all.push(text(&format!("ports/1/gids/{index}"), &in_groups(gid)));
        all.push(text(&format!("ports/1/gid_attrs/types/{index}"), "RoCE v2"));
        let address = gid::address_of(*gid);
        if let Some(port) = ports.iter().find(|port| port.addresses.contains(&address)) {
            all.push(text(&format!("ports/1/gid_attrs/ndevs/{index}"), &port.interface));
        }
    }
    for port in ports {
        for (file, value) in [("operstate", "up"), ("dev_id", "0x0"), ("dev_port", "0")] {
            all.push(text(&format!("device/net/{}/{file}", port.interface), value));
        }
    }
    all
}

/// As the kernel writes GUIDs and GIDs.
fn in_groups(octets: &[u8]) -> String {
    let groups = octets.chunks_exact(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    groups.collect::<Vec<_>>().join(":")
}
