//! Two connected endpoints. Each side has a thread of its own only while connecting.

use std::time::Duration;

use itapi::{Completion, Config, Ep, EpBuilder, Evd, Ia, Pz, Work};

/// Bound of waits, to fail instead of hang.
pub(crate) const HANG: Duration = Duration::from_secs(20);

/// An adapter that no configuration file influences.
pub(crate) fn open() -> Ia {
    Ia::builder().config(Config::default()).open().unwrap()
}

/// One end of a connection, with its objects.
pub(crate) struct Side {
    pub(crate) pz: Pz,
    pub(crate) evd: Evd,
    pub(crate) ep: Ep,
}

impl Side {
    pub(crate) fn new(ia: &Ia, shape: impl Fn(EpBuilder<'_>) -> EpBuilder<'_>) -> Self {
        let (pz, evd) = (ia.pz().unwrap(), ia.evd(256).unwrap());
        let ep = shape(pz.ep(&evd)).build().unwrap();
        Self { pz, evd, ep }
    }

    /// The next completion.
    pub(crate) fn next(&self) -> Completion {
        self.evd.wait(HANG).unwrap().expect("a completion")
    }

    /// The next completion, which must be a success.
    pub(crate) fn success(&self) -> Completion {
        self.evd.wait_success(HANG).unwrap()
    }
}

/// Connects two sides.
pub(crate) fn connect(ia: &Ia, client: &Side, server: &Side) {
    let listen = ia.listen("127.0.0.1:0").unwrap();
    let address = listen.address();
    std::thread::scope(|scope| {
        scope.spawn(|| listen.request().unwrap().accept(&server.ep, b"").unwrap());
        client.ep.connect(address, b"").unwrap();
    });
}

/// Two connected sides with the default shape: client, server.
pub(crate) fn pair() -> (Side, Side) {
    pair_of(|b| b)
}

/// Two connected sides of a shape.
pub(crate) fn pair_of(shape: impl Fn(EpBuilder<'_>) -> EpBuilder<'_>) -> (Side, Side) {
    let ia = open();
    let (client, server) = (Side::new(&ia, &shape), Side::new(&ia, &shape));
    connect(&ia, &client, &server);
    (client, server)
}

/// Waits until `client`'s RDMA Writes are placed in `server`'s memory: their completions mean only that the
/// source may be reused.
pub(crate) fn arrived(client: &Side, server: &Side) {
    server.ep.post_recv(server.pz.buffer(1).unwrap()).unwrap();
    client.ep.post(Work::send(b"")).unwrap();
    client.success();
    server.success();
}
