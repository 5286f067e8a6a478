//! Two processes, which exchange numbers and GIDs through pipes, and one of which dies.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::device::*;
use ofa::verbs::pd::*;
use ofa::verbs::qp::*;
use ofa::verbs::srq::*;

use crate::lab::*;

const PEER: &str = "OFA_TEST_PEER";

/// The other process: this program again, with another role.
fn peer(part: &str) -> Child {
    let this = std::env::current_exe().unwrap();
    let test = "processes::the_peer_plays_its_part";
    let mut command = Command::new(this);
    command.args(["--exact", test, "--nocapture"]).env(PEER, part);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// The rest of the peer's next line, which begins with this word.
fn line(from: &mut impl BufRead, word: &str) -> u32 {
    loop {
        let mut text = String::new();
        assert_ne!(from.read_line(&mut text).unwrap(), 0, "the peer ended before it sent {word}");
        if let Some(rest) = text.split(word).nth(1) {
            return rest.trim().parse().unwrap();
        }
    }
}

/// Only in the process that `peer` starts.
#[test]
fn the_peer_plays_its_part() {
    let Ok(part) = std::env::var(PEER) else { return };
    if part == "lists" {
        return list();
    }
    let lab = Lab::new();
    let qp = lab.qp();
    to_init(qp);
    if part == "unmaps" {
        return unmap(&lab, qp);
    }
    assert_eq!(lab.recv(qp, 1, &mut lab.sge(0, 64)), 0);
    println!("\nnumber {}", number(qp));
    let dest = line(&mut std::io::stdin().lock(), "number ");
    meet(qp, lab.gid(), dest);
    let wc = lab.success(1);
    if part == "forks" {
        fork(&lab);
    }
    // Sent back unchanged.
    assert_eq!(lab.send(qp, &mut wr(2, IBV_WR_SEND, &mut lab.sge(0, wc.byte_len))), 0);
    lab.success(2);
    match part.as_str() {
        "dies" => std::process::abort(),
        // Nothing is destroyed.
        "leaves" => std::process::exit(0),
        "orphans" => orphan(),
        _ => {}
    }
    assert_eq!(unsafe { warpline_ibv_destroy_qp(qp) }, 0);
}

/// A child survives the process, until its standard input is closed.
fn orphan() {
    if unsafe { libc::fork() } == 0 {
        let mut octet = 0u8;
        while unsafe { libc::read(0, (&raw mut octet).cast(), 1) } > 0 {}
        unsafe { libc::_exit(0) };
    }
    std::process::exit(0);
}

/// Names of the library's threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.join("comm")).ok());
    names.filter(|name| name.contains("warpline") || name.contains("softrdma")).collect()
}

/// Lists devices, as each process of an MPI job does, and then opens one.
fn list() {
    let mut count = 0;
    let list = unsafe { warpline_ibv_get_device_list(&mut count) };
    let device = unsafe { *list };
    assert!(!unsafe { warpline_ibv_get_device_name(device) }.is_null());
    assert_ne!(unsafe { warpline_ibv_get_device_guid(device) }, 0);
    unsafe { warpline_ibv_free_device_list(list) };
    assert_eq!(threads(), [""; 0]);
    let context = open();
    // A thread sets its name itself.
    warpline_patience::until("threads", || threads().len() == 2);
    assert_eq!(unsafe { warpline_ibv_close_device(context) }, 0);
    warpline_patience::until("no threads", || threads().is_empty());
}

/// Unmaps registered memory, and sends from it.
fn unmap(lab: &Lab, qp: *mut ibv_qp) {
    let size = 1 << 16;
    let (at, mr) = mapped(lab, size);
    let (addr, lkey) = (at.expose_provenance() as u64, unsafe { (*mr).lkey });
    assert_eq!(lab.recv(qp, 1, &mut lab.sge(0, 64)), 0);
    println!("\nnumber {}", number(qp));
    let dest = line(&mut std::io::stdin().lock(), "number ");
    meet(qp, lab.gid(), dest);
    lab.success(1);
    // Last, so that nothing else is mapped at this address.
    assert_eq!(unsafe { libc::munmap(at, size) }, 0);
    let mut sge = ibv_sge { addr, length: 64, lkey };
    lab.send(qp, &mut wr(2, IBV_WR_SEND, &mut sge));
    lab.completion();
    std::process::exit(1);
}

/// A child cannot use inherited objects, and may open a device of its own.
fn fork(inherited: &Lab) {
    let attr = ibv_srq_attr { max_wr: 1, max_sge: 1, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
    let srq = unsafe { warpline_ibv_create_srq(inherited.pd, &mut init) };
    // The other threads of this process wait in system calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = unsafe { warpline_ibv_dealloc_pd(inherited.pd) } == libc::EIO
            && unsafe { warpline_ibv_close_device(inherited.context) } == -1
            && errno() == libc::EIO
            && post_shared(inherited, srq) == libc::EIO
            && inherited.poll_raw() == -1;
        let lab = Lab::new();
        let qp = lab.qp();
        to_init(qp);
        meet(qp, lab.gid(), number(qp));
        assert_eq!(lab.recv(qp, 1, &mut lab.sge(64, 64)), 0);
        assert_eq!(lab.send(qp, &mut wr(1, IBV_WR_SEND, &mut lab.sge(0, 9))), 0);
        lab.success(1);
        lab.success(1);
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    assert_eq!(post_shared(inherited, srq), 0);
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// Posts a receive of no octets to a shared queue.
fn post_shared(lab: &Lab, srq: *mut ibv_srq) -> i32 {
    let mut wr = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
    unsafe { lab.ops().post_srq_recv.unwrap()(srq, &mut wr, &mut null_mut()) }
}

fn echo(part: &str) {
    let lab = Lab::new();
    let qp = lab.qp();
    to_init(qp);
    assert_eq!(lab.recv(qp, 10, &mut lab.sge(256, 64)), 0);
    let mut peer = peer(part);
    let mut output = BufReader::new(peer.stdout.take().unwrap());
    let dest = line(&mut output, "number ");
    let mut input = peer.stdin.take().unwrap();
    writeln!(input, "number {}", number(qp)).unwrap();
    meet(qp, lab.gid(), dest);
    lab.fill(0, b"there and back");
    assert_eq!(lab.send(qp, &mut wr(9, IBV_WR_SEND, &mut lab.sge(0, 14))), 0);
    lab.success(9);
    assert_eq!(lab.success(10).byte_len, 14);
    assert_eq!(lab.read(256, 14), b"there and back");
    let status = peer.wait().unwrap();
    assert_eq!(status.success(), part != "dies");
    lose(&lab, qp);
    drop(input);
    destroy(qp);
}

/// A send to the peer completes, whatever happened to the peer.
pub(crate) fn lose(lab: &Lab, qp: *mut ibv_qp) {
    warpline_patience::until("a send that is lost", || {
        let posted = lab.send(qp, &mut wr(11, IBV_WR_SEND, &mut lab.sge(0, 1)));
        posted == 0 && lab.completion().status != IBV_WC_SUCCESS
    });
    let mut event = crate::events::next(lab.context);
    crate::events::acknowledge(&mut event);
}

#[test]
fn a_process_that_destroys_at_once_has_sent_what_completed() {
    echo("ends");
}

#[test]
fn a_child_has_its_own_state_and_does_not_affect_its_parents_connections() {
    echo("forks");
}

#[test]
fn a_process_that_dies_is_noticed_by_the_next_send() {
    echo("dies");
}

#[test]
fn a_process_that_exits_has_sent_what_completed() {
    echo("leaves");
}

#[test]
fn a_process_that_ends_while_its_child_runs_is_noticed_by_the_next_send() {
    echo("orphans");
}

#[test]
fn devices_are_listed_without_a_thread() {
    assert!(peer("lists").wait().unwrap().success());
}

/// The library copies from unmapped memory (docs/verbs.md, Limits): this ends that process, and no other.
#[test]
fn a_send_from_memory_that_is_unmapped_ends_only_its_process() {
    let lab = Lab::new();
    let qp = lab.qp();
    to_init(qp);
    let mut peer = peer("unmaps");
    let mut output = BufReader::new(peer.stdout.take().unwrap());
    let dest = line(&mut output, "number ");
    writeln!(peer.stdin.take().unwrap(), "number {}", number(qp)).unwrap();
    meet(qp, lab.gid(), dest);
    assert_eq!(lab.send(qp, &mut wr(1, IBV_WR_SEND, &mut lab.sge(0, 8))), 0);
    lab.success(1);
    assert_eq!(peer.wait().unwrap().signal(), Some(libc::SIGSEGV));
    lose(&lab, qp);
    destroy(qp);
}
