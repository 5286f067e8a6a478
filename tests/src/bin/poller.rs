//! Two ends that send each other messages of 8 octets through shared memory and poll for them, with marks on
//! standard error between windows of round trips: system calls that a tracer shows between two marks belong to
//! the window.
//!
//! `poller serve` prints `listening ADDRESS` and echoes one connection; `poller connect ADDRESS` leads. One
//! thread each; both end after the last window, or with an error when the other dies.

use std::io::Write;

use itapi::{
    Buffer, Completion, Ep, Error, Evd, Ia, LocalStreams, Operation, Result, WcStatus, Work,
};

/// Round trips of a window, and windows; during the first ones the two ends begin to poll.
const TRIPS: u32 = 1000;
const WINDOWS: u32 = 60;

fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let ia = Ia::builder().policy(|policy| policy.local = LocalStreams::Require).open()?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => {
            let listen = ia.listen("127.0.0.1:0")?;
            println!("listening {}", listen.address());
            let request = listen.request()?;
            let mut end = End::new(&ia)?;
            request.accept(&end.ep, b"")?;
            end.windows(|end| end.receive().and_then(|()| end.send()))
        }
        ["connect", address] => {
            let mut end = End::new(&ia)?;
            end.ep.connect(address, b"")?;
            end.windows(|end| end.send().and_then(|()| end.receive()))?;
            end.ep.disconnect()
        }
        _ => Err(Error::Argument("usage: poller serve | poller connect ADDRESS".into())),
    }
}

/// In one call.
fn mark(window: u32) {
    // Without it there are too few windows, which the test reports.
    let _ = std::io::stderr().write_all(format!("mark {window}\n").as_bytes());
}

struct End {
    evd: Evd,
    ep: Ep,
    /// The buffer to send from.
    spare: Option<Buffer>,
}

impl End {
    fn new(ia: &Ia) -> Result<Self> {
        let (pz, evd) = (ia.pz()?, ia.evd(8)?);
        let ep = pz.ep(&evd).depth(2, 2).max_pieces(1).build()?;
        ep.post_recv(pz.buffer(8)?)?;
        ep.post_recv(pz.buffer(8)?)?;
        Ok(Self { evd, ep, spare: Some(pz.buffer(8)?) })
    }

    fn windows(&mut self, trip: impl Fn(&mut Self) -> Result<()>) -> Result<()> {
        for window in 0..WINDOWS {
            mark(window);
            (0..TRIPS).try_for_each(|_| trip(self))?;
        }
        mark(WINDOWS);
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        loop {
            if let Some(buffer) = self.spare.take() {
                return self.ep.post(Work::send(buffer)).map(drop);
            }
            if let Some(completion) = self.evd.poll()? {
                self.take(completion)?;
            }
        }
    }

    fn receive(&mut self) -> Result<()> {
        loop {
            if let Some(completion) = self.evd.poll()?
                && self.take(completion)?
            {
                return Ok(());
            }
        }
    }

    /// Whether it was a message.
    fn take(&mut self, completion: Completion) -> Result<bool> {
        if completion.status == WcStatus::Flushed {
            return Err(Error::Argument("the other end has gone".into()));
        }
        completion.check()?;
        let is_message = matches!(completion.operation, Operation::Recv);
        match completion.into_buffer() {
            Some(buffer) if is_message => self.ep.post_recv(buffer).map(drop)?,
            buffer => self.spare = buffer,
        }
        Ok(is_message)
    }
}
