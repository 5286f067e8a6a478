//! Finds the owner of a TCP socket of this network namespace. No state.

use std::io;
use std::net::SocketAddr;

use kal_os::fork::Descriptors;
use kal_os::{owner_of_tcp, socket_for_owners};

use super::NotLocal;
use crate::fork::Host;

/// The user who owns the TCP socket that is bound to `local` and connected to `remote`.
///
/// # Errors
/// [`NotLocal::UnknownOwner`]: there is no such socket here, no process owns it yet or any more, its user is
/// not known in this user namespace, or the kernel does not report it.
pub fn owner(local: SocketAddr, remote: SocketAddr) -> Result<u32, NotLocal> {
    let socket = Descriptors::make::<Host, _>(|| Ok(socket_for_owners()?)).map_err(unknown)?;
    let found = owner_of_tcp(&socket, local, remote).map_err(|errno| unknown(errno.into()))?;
    found.ok_or(NotLocal::UnknownOwner)
}

/// Shortages have their own reasons.
fn unknown(error: io::Error) -> NotLocal {
    match NotLocal::from(error) {
        short @ (NotLocal::NoMemory | NotLocal::NoDescriptors) => short,
        _ => NotLocal::UnknownOwner,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn both_ends_of_a_connection_have_an_owner() {
        for (at, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")]
        {
            let listener = TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect((to, port)).unwrap();
            let (server, _) = listener.accept().unwrap();
            let local = crate::sock::local_addr(&client).unwrap();
            let remote = crate::sock::peer_addr(&client).unwrap();
            assert_eq!(owner(local, remote), Ok(me()), "{local} to {remote}");
            assert_eq!(owner(remote, local), Ok(me()), "{remote} to {local}");
            drop(server);
        }
    }

    #[test]
    fn a_connection_without_an_owner_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // No connection from there; the listener does not count.
        let stranger = "127.0.0.9:9".parse().unwrap();
        assert_eq!(owner(address, stranger), Err(NotLocal::UnknownOwner));
        // Not accepted.
        let client = TcpStream::connect(address).unwrap();
        assert_eq!(owner(address, client.local_addr().unwrap()), Err(NotLocal::UnknownOwner));
    }
}
