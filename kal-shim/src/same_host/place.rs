//! Names of the rendezvous: abstract, or files in a directory that both ends see; and which addresses belong to
//! this machine. A file belongs to the socket that is bound to it, and is removed with it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kal_os::fork::{Descriptors, Foreign};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Connection, NotLocal};
use crate::fork::{Host, generation};

/// Longest path of a directory: with the longest name it fits a unix socket's address.
const MAX_DIRECTORY: usize = 46;

/// Version of the rendezvous: ends of different versions do not find each other.
pub(super) const VERSION: u32 = 2;

/// Backlog of a name; one connection is expected.
const BACKLOG: i32 = 8;

/// Place of a rendezvous, with the name of its use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// An abstract name of this network namespace, in the names of this use.
    Abstract(&'static str),
    /// A directory that both ends see, with files for this use.
    Directory(&'static str, PathBuf),
}

/// Why a directory cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectoryError {
    /// Not an absolute path.
    Relative,
    /// Its path is too long for names in it.
    TooLong,
    /// It does not exist, or cannot be read.
    Missing,
    /// It is not a directory.
    NotDirectory,
    /// It belongs to another user.
    OtherOwner,
    /// All users may write to it.
    WorldWritable,
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relative => f.write_str("it is not an absolute path"),
            Self::TooLong => write!(f, "its path has more than {MAX_DIRECTORY} octets"),
            Self::Missing => f.write_str("there is no such directory"),
            Self::NotDirectory => f.write_str("it is not a directory"),
            Self::OtherOwner => f.write_str("it belongs to another user"),
            Self::WorldWritable => f.write_str("everybody may write to it"),
        }
    }
}

/// Refuses a directory in which others could take or replace names: it must belong to this user, and not be
/// writable for all.
///
/// # Errors
/// What is wrong with it.
pub fn check_directory(path: &Path) -> Result<(), DirectoryError> {
    if !path.is_absolute() {
        return Err(DirectoryError::Relative);
    }
    if path.as_os_str().len() > MAX_DIRECTORY {
        return Err(DirectoryError::TooLong);
    }
    let found = std::fs::metadata(path).map_err(|_| DirectoryError::Missing)?;
    if !found.is_dir() {
        return Err(DirectoryError::NotDirectory);
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(DirectoryError::OtherOwner);
    }
    if found.mode() & 0o002 != 0 {
        return Err(DirectoryError::WorldWritable);
    }
    Ok(())
}

/// Whether the peer of a connection has its address on this machine and in this network namespace.
pub fn is_here(local: SocketAddr, remote: SocketAddr) -> bool {
    if local.ip() == remote.ip() || remote.ip().to_canonical().is_loopback() {
        return true;
    }
    let mut own = remote;
    own.set_port(0);
    let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    // Only an address of this machine can be bound to.
    let socket = Descriptors::make::<Host, _>(|| {
        Ok(rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
    });
    socket.is_ok_and(|socket| rustix::net::bind(&socket, &own).is_ok())
}

/// A listening socket and its file.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) socket: Foreign<Host>,
    file: Option<PathBuf>,
    /// A child does not remove its parent's file.
    generation: u32,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(file) = &self.file
            && self.generation == generation()
        {
            // Another process may have removed it.
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Place {
    /// The socket's address for a connection.
    fn address(&self, of: &Connection) -> Result<SocketAddrUnix, NotLocal> {
        Ok(match self {
            Self::Abstract(word) => {
                let name = format!("warpline/{VERSION}/{word}/{}", name(of));
                SocketAddrUnix::new_abstract_name(name.as_bytes())?
            }
            Self::Directory(..) => SocketAddrUnix::new(self.file(of).unwrap_or_default())?,
        })
    }

    fn file(&self, of: &Connection) -> Option<PathBuf> {
        match self {
            Self::Abstract(_) => None,
            Self::Directory(word, directory) => {
                Some(directory.join(format!("{word}.{VERSION}.{}", name(of))))
            }
        }
    }

    fn check(&self) -> Result<(), NotLocal> {
        match self {
            Self::Abstract(_) => Ok(()),
            Self::Directory(_, path) => check_directory(path).map_err(|_| NotLocal::Directory),
        }
    }

    /// Binds the name of a connection, and listens there.
    pub(super) fn bind(&self, of: &Connection) -> Result<Bound, NotLocal> {
        self.check()?;
        let (address, file) = (self.address(of)?, self.file(of));
        let socket = socket()?;
        match rustix::net::bind(&socket, &address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => {
                // It may be left by a killed process.
                let file = file.as_ref().ok_or(NotLocal::NameTaken)?;
                match rustix::net::connect(&self::socket()?, &address) {
                    Err(Errno::CONNREFUSED) => {}
                    _ => return Err(NotLocal::NameTaken),
                }
                std::fs::remove_file(file)?;
                rustix::net::bind(&socket, &address)?;
            }
            Err(errno) => return Err(errno.into()),
        }
        let bound = Bound { socket, file, generation: generation() };
        rustix::net::listen(&bound.socket, BACKLOG)?;
        Ok(bound)
    }

    /// Connects to the name of a connection.
    pub(super) fn dial(&self, of: &Connection) -> Result<Foreign<Host>, NotLocal> {
        self.check()?;
        let socket = socket()?;
        match rustix::net::connect(&socket, &self.address(of)?) {
            Ok(()) => Ok(socket),
            Err(Errno::CONNREFUSED | Errno::NOENT) => Err(NotLocal::PeerPlain),
            Err(Errno::AGAIN) => Err(NotLocal::PeerBusy),
            // A foreign socket, of another type or with other permissions.
            Err(Errno::PROTOTYPE | Errno::ACCESS | Errno::PERM) => Err(NotLocal::OtherUser),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Anybody may write into what it is connected to.
fn socket() -> io::Result<Foreign<Host>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Foreign::make(|| {
        let kind = SocketType::SEQPACKET;
        Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
    })
}

/// The address of the end that waits, without the scope of a link-local one, which differs between the ends; and
/// the port of the end that dials. The kernel connects one port to several peers at once, so the first alone may
/// belong to two connections.
fn name(of: &Connection) -> String {
    let waiting = SocketAddr::new(of.waiting.ip().to_canonical(), of.waiting.port());
    format!("{waiting}-{}", of.dialling.port())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn addresses_of_this_machine_are_here() {
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        assert!(is_here(at("127.0.0.1:1"), at("127.0.0.2:2")));
        assert!(is_here(at("[::1]:1"), at("[::1]:2")));
        assert!(is_here(at("192.0.2.7:1"), at("192.0.2.7:2")));
        // Addresses for documentation, which no machine has.
        assert!(!is_here(at("10.0.0.1:1"), at("192.0.2.7:2")));
        assert!(!is_here(at("[2001:db8::1]:1"), at("[2001:db8::2]:2")));
    }

    #[test]
    fn names_do_not_depend_on_how_an_address_is_written() {
        let connection = |waiting: &str, dialling: &str| Connection {
            waiting: waiting.parse().unwrap(),
            dialling: dialling.parse().unwrap(),
        };
        let name = |waiting, dialling| {
            Place::Abstract("mpa").address(&connection(waiting, dialling)).unwrap()
        };
        let of = |text: &str| SocketAddrUnix::new_abstract_name(text.as_bytes()).unwrap();
        let plain = of("warpline/2/mpa/127.0.0.1:40000-7");
        assert_eq!(name("127.0.0.1:40000", "127.0.0.1:7"), plain);
        assert_eq!(name("[::ffff:127.0.0.1]:40000", "[::ffff:127.0.0.1]:7"), plain);
        assert_ne!(name("127.0.0.1:40000", "127.0.0.1:8"), plain);
        assert_eq!(name("[fe80::1%3]:7", "[fe80::2]:9"), of("warpline/2/mpa/[fe80::1]:7-9"));
        let longest = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535";
        let longest = connection(longest, longest);
        let long = PathBuf::from(format!("/{}", "d".repeat(MAX_DIRECTORY - 1)));
        for place in [Place::Abstract("sock"), Place::Directory("sock", long)] {
            place.address(&longest).unwrap();
        }
    }

    #[test]
    fn a_directory_must_be_ones_own() {
        let directory = std::env::temp_dir().join(format!("same-host-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&directory, mode).unwrap();
        };
        mode(0o770);
        assert_eq!(check_directory(&directory), Ok(()));
        mode(0o1777);
        assert_eq!(check_directory(&directory), Err(DirectoryError::WorldWritable));
        mode(0o700);
        let file = directory.join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(check_directory(&file), Err(DirectoryError::NotDirectory));
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(check_directory(&directory), Err(DirectoryError::Missing));
        assert_eq!(check_directory(Path::new("tmp")), Err(DirectoryError::Relative));
        let long = format!("/{}", "d".repeat(MAX_DIRECTORY));
        assert_eq!(check_directory(Path::new(&long)), Err(DirectoryError::TooLong));
    }
}
