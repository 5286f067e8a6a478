//! Two connected ends.

use std::time::Duration;

use itapi::{Config, Ia};
use warpline_channel::{Channel, Listener, Options};

/// Bound of waits, to fail instead of hang.
pub(crate) const HANG: Duration = Duration::from_secs(30);

/// An adapter that no configuration file influences.
pub(crate) fn open() -> Ia {
    Ia::builder().config(Config::default()).open().unwrap()
}

/// A configuration with few and small messages, and a time-out for every wait.
pub(crate) const TIGHT: Options = Options {
    small: 256,
    slots: 4,
    large: 2,
    longest: 1 << 20,
    patience: Some(HANG),
    resume: None,
    returns: None,
};

/// Two connected ends with this configuration.
pub(crate) fn pair(options: Options) -> (Channel, Channel) {
    uneven(options, options)
}

/// The client's end and the server's, with different configurations.
pub(crate) fn uneven(client: Options, server: Options) -> (Channel, Channel) {
    let ia = open();
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", server).unwrap();
    let address = listener.address();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let client = Channel::connect_with(&ia, address, client).unwrap();
        (client, accepted.join().unwrap())
    })
}

/// A message whose octets encode its number and length.
pub(crate) fn message(number: u64, octets: usize) -> Vec<u8> {
    (0..octets).map(|at| (number as usize * 31 + at) as u8).collect()
}
