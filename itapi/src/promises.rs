//! What the compiler guarantees: for each promise a program that it rejects, next to one that it accepts.
//!
//! # Posted memory belongs to the network
//!
//! A work request owns its memory until the completion returns it. This compiles:
//!
//! ```
//! # use itapi::{Buffer, Ep, Evd, Result, Work};
//! # fn show(ep: &Ep, evd: &Evd, buffer: Buffer) -> Result<()> {
//! println!("{}", buffer.len());
//! ep.post(Work::send(buffer))?;
//! # Ok(())
//! # }
//! ```
//!
//! and this does not: a posted buffer cannot be read,
//!
//! ```compile_fail,E0382
//! # use itapi::{Buffer, Ep, Evd, Result, Work};
//! # fn show(ep: &Ep, evd: &Evd, buffer: Buffer) -> Result<()> {
//! ep.post(Work::send(buffer))?;
//! println!("{}", buffer.len());
//! # Ok(())
//! # }
//! ```
//!
//! nor dropped, because the peer may still write there,
//!
//! ```compile_fail,E0382
//! # use itapi::{Buffer, Ep, Evd, Result, Work};
//! # fn show(ep: &Ep, evd: &Evd, buffer: Buffer) -> Result<()> {
//! ep.post_recv(buffer)?;
//! drop(buffer);
//! # Ok(())
//! # }
//! ```
//!
//! nor posted a second time,
//!
//! ```compile_fail,E0382
//! # use itapi::{Buffer, Ep, Evd, Result, Work};
//! # fn show(ep: &Ep, evd: &Evd, buffer: Buffer) -> Result<()> {
//! ep.post_recv(buffer)?;
//! ep.post_recv(buffer)?;
//! # Ok(())
//! # }
//! ```
//!
//! unless a completion has returned it in between:
//!
//! ```
//! # use itapi::{Buffer, Ep, Evd, Result, Work};
//! # fn show(ep: &Ep, evd: &Evd, buffer: Buffer) -> Result<()> {
//! # let second = std::time::Duration::from_secs(1);
//! ep.post_recv(buffer)?;
//! if let Some(buffer) = evd.wait_success(second)?.into_buffer() {
//!     ep.post_recv(buffer)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Memory has one owner
//!
//! A completion returns its memory once:
//!
//! ```
//! # use itapi::{Buffer, Completion};
//! # fn show(completion: Completion) -> [Option<Buffer>; 1] {
//! [completion.into_buffer()]
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # use itapi::{Buffer, Completion};
//! # fn show(completion: Completion) -> [Option<Buffer>; 2] {
//! [completion.into_buffer(), completion.into_buffer()]
//! # }
//! ```
//!
//! A region ([`Lmr`](crate::Lmr)) may have many handles; a buffer has one:
//!
//! ```
//! # fn show(region: itapi::Lmr, buffer: itapi::Buffer) -> itapi::Lmr {
//! region.clone()
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # fn show(region: itapi::Lmr, buffer: itapi::Buffer) -> itapi::Buffer {
//! buffer.clone()
//! # }
//! ```
//!
//! # Shared memory is no slice
//!
//! Memory that a peer may write at any moment is copied,
//!
//! ```
//! # fn show(region: &itapi::Lmr) -> itapi::Result<u8> {
//! let mut octets = [0];
//! region.read_at(0, &mut octets)?;
//! Ok(octets[0])
//! # }
//! ```
//!
//! never borrowed:
//!
//! ```compile_fail,E0608
//! # fn show(region: &itapi::Lmr) -> itapi::Result<u8> {
//! Ok(region[0])
//! # }
//! ```
//!
//! A buffer, which no peer can access, is a slice:
//!
//! ```
//! # fn show(buffer: &mut itapi::Buffer) {
//! buffer.reverse();
//! # }
//! ```
//!
//! Memory that is given for registration cannot be accessed until it is returned,
//!
//! ```
//! # fn show(pz: &itapi::Pz, memory: Vec<u8>) -> Result<u8, Box<dyn std::error::Error>> {
//! let region = pz.adopt(memory).remote_write().register()?;
//! Ok(region.deregister()?[0])
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # fn show(pz: &itapi::Pz, memory: Vec<u8>) -> Result<u8, Box<dyn std::error::Error>> {
//! let region = pz.adopt(memory).remote_write().register()?;
//! Ok(memory[0])
//! # }
//! ```
//!
//! and so is memory that is lent, until the loan is over:
//!
//! ```
//! # fn show(pz: &itapi::Pz, mut memory: [u8; 8]) -> itapi::Result<u8> {
//! pz.lend(&mut memory, itapi::Access::REMOTE_WRITE, |region| region.write_at(0, b"x"))??;
//! Ok(memory[0])
//! # }
//! ```
//!
//! ```compile_fail,E0503
//! # fn show(pz: &itapi::Pz, mut memory: [u8; 8]) -> itapi::Result<u8> {
//! pz.lend(&mut memory, itapi::Access::REMOTE_WRITE, |region| memory[0])
//! # }
//! ```
//!
//! # Octets that are copied while posting live until then
//!
//! ```
//! # fn show(ep: &itapi::Ep) -> itapi::Result<()> {
//! let text = String::from("hello");
//! let work = itapi::Work::send(text.as_bytes());
//! ep.post(work)?;
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0505
//! # fn show(ep: &itapi::Ep) -> itapi::Result<()> {
//! let text = String::from("hello");
//! let work = itapi::Work::send(text.as_bytes());
//! drop(text);
//! ep.post(work)?;
//! # Ok(())
//! # }
//! ```
//!
//! # A request is accepted or rejected once
//!
//! ```
//! # fn show(request: itapi::Request, ep: &itapi::Ep) -> itapi::Result<()> {
//! request.accept(ep, b"")?;
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # fn show(request: itapi::Request, ep: &itapi::Ep) -> itapi::Result<()> {
//! request.accept(ep, b"")?;
//! request.reject(b"")?;
//! # Ok(())
//! # }
//! ```
//!
//! # A converted socket is no socket any more
//!
//! ```
//! # use std::{io::Write, net::TcpStream};
//! # fn show(mut socket: TcpStream, ep: &itapi::Ep) -> Result<(), Box<dyn std::error::Error>> {
//! # let params = itapi::ConvertParams::new(itapi::Role::Initiator);
//! socket.write_all(b"upgrade")?;
//! ep.convert(socket, params)?;
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # use std::{io::Write, net::TcpStream};
//! # fn show(mut socket: TcpStream, ep: &itapi::Ep) -> Result<(), Box<dyn std::error::Error>> {
//! # let params = itapi::ConvertParams::new(itapi::Role::Initiator);
//! ep.convert(socket, params)?;
//! socket.write_all(b"upgrade")?;
//! # Ok(())
//! # }
//! ```
//!
//! # A callback owns what it uses
//!
//! It may run on another thread, at any time, so it owns what it needs,
//!
//! ```
//! # use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
//! # fn show(evd: &itapi::Evd) -> itapi::Result<()> {
//! let calls = Arc::new(AtomicU32::new(0));
//! let counted = calls.clone();
//! evd.on_event(move |_| drop(counted.fetch_add(1, Ordering::Relaxed)))?;
//! # Ok(())
//! # }
//! ```
//!
//! and neither borrows it
//!
//! ```compile_fail,E0597
//! # use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
//! # fn show(evd: &itapi::Evd) -> itapi::Result<()> {
//! let calls = AtomicU32::new(0);
//! let counted = &calls;
//! evd.on_event(move |_| drop(counted.fetch_add(1, Ordering::Relaxed)))?;
//! # Ok(())
//! # }
//! ```
//!
//! nor shares what threads cannot share:
//!
//! ```compile_fail,E0277
//! # use std::{cell::Cell, rc::Rc};
//! # fn show(evd: &itapi::Evd) -> itapi::Result<()> {
//! let calls = Rc::new(Cell::new(0));
//! let counted = calls.clone();
//! evd.on_event(move |_| counted.set(counted.get() + 1))?;
//! # Ok(())
//! # }
//! ```
