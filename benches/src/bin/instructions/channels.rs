//! Steps of `warpline-channel`: a message that is sent, and one that is received, with and without a session that may be
//! resumed.
//!
//! The other end has a thread and an adapter of its own, so that its work is not counted.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use itapi::Ia;
use warpline_benches::{Error, Result};
use warpline_channel::{Channel, Listener, Options};

use crate::end::LIST;

/// Two connected ends, of which a thread serves the other. It ends when this is dropped.
pub(crate) struct Ends {
    pub(crate) near: Channel,
    orders: Sender<Order>,
    done: Receiver<Result<()>>,
    _ia: Ia,
}

/// What the other end does with a list of messages.
pub(crate) enum Order {
    Take,
    Send,
}

impl Ends {
    pub(crate) fn new(resumes: bool) -> Result<Self> {
        let options = Options {
            resume: resumes.then_some(Duration::from_secs(60)),
            // So many that no send waits, and that no confirmation is due within a list.
            slots: 8 * LIST as u16,
            small: 1024,
            ..Options::default()
        };
        let (far, near) = (Ia::open()?, Ia::open()?);
        let listener = Listener::bind_with(&far, "127.0.0.1:0", options)?;
        let address = listener.address().to_string();
        let (orders, to_do) = channel();
        let (finished, done) = channel();
        std::thread::spawn(move || {
            let _far = far;
            let Ok(channel) = listener.accept() else { return };
            for order in to_do {
                if finished.send(obey(&channel, &order)).is_err() {
                    return;
                }
            }
        });
        let near_end = Channel::connect_with(&near, &address, options)?;
        Ok(Self { near: near_end, orders, done, _ia: near })
    }

    /// Lets the other end obey, and waits until it has.
    pub(crate) fn far(&self, order: Order) -> Result<()> {
        self.orders.send(order).map_err(|_| Error::from("the other end is gone"))?;
        self.done.recv().map_err(|_| Error::from("the other end is gone"))?
    }
}

fn obey(channel: &Channel, order: &Order) -> Result<()> {
    (0..LIST).try_for_each(|_| match order {
        Order::Take => Ok(channel.recv().map(drop)?),
        Order::Send => Ok(channel.send(b"12345678")?),
    })
}
