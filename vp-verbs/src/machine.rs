//! Diagnoses why this machine has no usable RDMA device, and suggests a remedy.
//!
//! Reads files below `/sys` and `/dev` and the process's limits. Has no state; any thread.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use vp_api::Unavailable;

use crate::device::Listed;

/// Locked memory that the queues of one QP need, before the application registers anything.
const LEAST_LOCKED: u64 = 64 << 10;

/// The directories in which the kernel lists RDMA devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into() }
    }
}

impl Machine {
    /// The reason why the verbs library lists no device.
    pub(crate) fn why_no_device(&self) -> Unavailable {
        let present = self.sys.join("class/infiniband");
        if !present.exists() {
            return unavailable(
                format!("the kernel has no RDMA: {} does not exist", present.display()),
                "load the driver of the adapter; without one: `modprobe siw` or `modprobe rdma_rxe`",
            );
        }
        let names = entries(&present);
        if names.is_empty() {
            return unavailable(
                format!("there are 0 RDMA devices in {}, 1 is needed", present.display()),
                "load the adapter's driver, or make one: `rdma link add siw0 type siw netdev eth0`",
            );
        }
        if !self.sys.join("class/infiniband_verbs").exists() {
            return unavailable(
                "the kernel module ib_uverbs is not loaded".into(),
                "load it: `modprobe ib_uverbs`",
            );
        }
        unavailable(
            format!("libibverbs has no driver for {}", names.join(", ")),
            "install the user-space drivers (Debian: ibverbs-providers)",
        )
    }

    /// The reason why a device cannot be opened: its files, or the library's error.
    pub(crate) fn why_not(&self, device: &Listed, error: &io::Error) -> Unavailable {
        self.check_files(&device.uverbs).err().unwrap_or_else(|| {
            unavailable(
                format!("{} cannot be opened: {error}", device.name),
                "see the kernel's log (dmesg)",
            )
        })
    }

    /// Whether the device files of the verbs and of rdma_cm can be used.
    fn check_files(&self, uverbs: &str) -> Result<(), Unavailable> {
        let dir = self.dev.join("infiniband");
        if !dir.exists() {
            return Err(unavailable(
                format!("{} does not exist", dir.display()),
                "run udev, or pass the directory into the container (--device /dev/infiniband)",
            ));
        }
        openable(&dir.join(uverbs), "ib_uverbs")?;
        openable(&dir.join("rdma_cm"), "rdma_ucm")
    }
}

/// Checks whether this process may lock the memory that the queues of one QP need.
pub(crate) fn check_limits() -> Result<(), Unavailable> {
    match locked_limit() {
        Some(limit) if limit < LEAST_LOCKED => Err(unavailable(
            format!(
                "the limit of locked memory is {limit} octets, {LEAST_LOCKED} are needed at least"
            ),
            RAISE,
        )),
        _ => Ok(()),
    }
}

const RAISE: &str = "raise it: `ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, or \
                     memlock in /etc/security/limits.conf";

fn unavailable(reason: String, remedy: &str) -> Unavailable {
    Unavailable { reason, remedy: remedy.into() }
}

fn entries(dir: &Path) -> Vec<String> {
    let list = fs::read_dir(dir).into_iter().flatten().flatten();
    list.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn openable(file: &Path, module: &str) -> Result<(), Unavailable> {
    let error = match OpenOptions::new().read(true).write(true).open(file) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let remedy = match error.kind() {
        ErrorKind::NotFound => format!("load the kernel module: `modprobe {module}`"),
        ErrorKind::PermissionDenied => {
            "read and write permission is needed: join the file's group, or add a udev rule with \
             MODE=\"0666\""
                .into()
        }
        _ => "see the kernel's log (dmesg)".into(),
    };
    Err(Unavailable { reason: format!("{}: {error}", file.display()), remedy })
}

/// Octets that this process may lock; `None` if unlimited.
fn locked_limit() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Text appended to an "out of memory" of the kernel: the limit that is most often the reason.
pub(crate) fn memlock_hint() -> String {
    match locked_limit() {
        Some(limit) => format!(
            "; this process may lock {limit} octets, and a device locks all memory that is \
             registered and its queues; {RAISE}"
        ),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str) -> Machine {
        let root = std::env::temp_dir().join(format!("warpline-{}-{name}", std::process::id()));
        let machine = Machine { sys: root.join("sys"), dev: root.join("dev") };
        fs::create_dir_all(&machine.sys).unwrap();
        fs::create_dir_all(&machine.dev).unwrap();
        machine
    }

    fn gone(machine: &Machine) {
        fs::remove_dir_all(machine.sys.parent().unwrap()).unwrap();
    }

    #[test]
    fn each_missing_part_is_named() {
        let m = machine("parts");
        assert!(m.why_no_device().reason.contains("no RDMA"));
        fs::create_dir_all(m.sys.join("class/infiniband")).unwrap();
        assert!(m.why_no_device().reason.contains("0 RDMA devices"));
        fs::create_dir_all(m.sys.join("class/infiniband/siw0")).unwrap();
        assert!(m.why_no_device().reason.contains("ib_uverbs is not loaded"));
        fs::create_dir_all(m.sys.join("class/infiniband_verbs")).unwrap();
        assert!(m.why_no_device().reason.contains("no driver for siw0"));
        gone(&m);
    }

    #[test]
    fn device_files_are_checked_in_turn() {
        let m = machine("files");
        let dir = m.dev.join("infiniband");
        let device = Listed { name: "siw0".into(), uverbs: "uverbs0".into() };
        let why = || m.why_not(&device, &io::Error::from_raw_os_error(libc::ENODEV));
        assert!(why().reason.contains("infiniband does not exist"));
        fs::create_dir_all(&dir).unwrap();
        assert!(why().remedy.contains("modprobe ib_uverbs"));
        fs::write(dir.join("uverbs0"), "").unwrap();
        assert!(why().remedy.contains("modprobe rdma_ucm"));
        fs::write(dir.join("rdma_cm"), "").unwrap();
        assert!(why().reason.contains("siw0 cannot be opened: No such device"));
        gone(&m);
    }

    #[test]
    fn the_limit_of_locked_memory_is_named() {
        match (locked_limit(), check_limits()) {
            (Some(limit), Err(why)) if limit < LEAST_LOCKED => {
                assert!(why.remedy.contains("ulimit -l"));
            }
            (_, checked) => checked.unwrap(),
        }
    }
}
