//! Memory that is unmapped while it is registered, as the registration cache of UCX leaves it (docs/verbs.md,
//! Limits). Each test runs again in processes of its own.

use std::ffi::c_int;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output};

use ibv_sys::*;
use ofa::verbs::ah::*;
use ofa::verbs::mr::*;

use crate::lab::*;

const CASE: &str = "OFA_TEST_UNMAPPED";
const SIZE: usize = 1 << 20;
const LARGE: u32 = 1 << 16;

/// Runs `test` again, alone, with these variables.
fn again(test: &str, case: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("unmapped::{test}");
    command.args(["--exact", &name, "--nocapture"]).env(CASE, case).env_remove("WARPLINE_CONFIG");
    command.envs(variables.iter().copied()).output().unwrap()
}

/// A configuration for TCP without CRC: the kernel reads and writes the payloads of large FPDUs at their places.
fn plain_tcp(name: &str) -> PathBuf {
    let file = format!("ofa-unmapped-{name}-{}.toml", std::process::id());
    let file = std::env::temp_dir().join(file);
    std::fs::write(&file, "[policy]\nlocal = \"off\"\ncrc = \"off\"\n").unwrap();
    file
}

fn assert_success(case: &str, output: &Output) {
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{case}: {}\n{out}{err}", output.status);
}

#[test]
fn what_arrives_for_unmapped_memory_is_dropped() {
    if std::env::var_os(CASE).is_some() {
        return drop_messages();
    }
    let file = plain_tcp("receive");
    let tcp = file.to_str().unwrap();
    for (case, variables) in [
        ("shared memory", vec![]),
        ("TCP", vec![("WARPLINE_CONFIG", tcp)]),
        ("RoCE", vec![("WARPLINE_VERBS_ROCE", "1")]),
    ] {
        let output = again("what_arrives_for_unmapped_memory_is_dropped", case, &variables);
        assert_success(case, &output);
    }
    std::fs::remove_file(file).unwrap();
}

/// Sends, and then a Write, to memory that was unmapped; then a message to memory that is there.
fn drop_messages() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = (near.qp(), far.qp());
    let (at, mr) = mapped(&far, SIZE);
    let addr = at.expose_provenance() as u64;
    let (lkey, rkey) = unsafe { ((*mr).lkey, (*mr).rkey) };
    let mut sges = [(0, 8), (4096 - 3, 9), (8192, LARGE)].map(|(offset, length)| ibv_sge {
        addr: addr + offset,
        length,
        lkey,
    });
    [a, b].into_iter().for_each(to_init);
    for (id, sge) in (20..).zip(&mut sges) {
        assert_eq!(far.recv(b, id, sge), 0);
    }
    assert_eq!(far.recv(b, 23, &mut far.sge(0, 8)), 0);
    let gid = first_gid(&near);
    meet(a, gid, number(b));
    meet(b, gid, number(a));
    assert_eq!(unsafe { libc::munmap(at, SIZE) }, 0);
    for (id, length) in (10..).zip([8, 9, LARGE]) {
        assert_eq!(near.send(a, &mut wr(id, IBV_WR_SEND, &mut near.sge(0, length))), 0);
        near.success(id);
        assert_eq!(far.success(id + 10).byte_len, length);
    }
    let mut sge = near.sge(0, LARGE);
    let mut write = wr(13, IBV_WR_RDMA_WRITE, &mut sge);
    write.wr = wr_union { rdma: wr_rdma { remote_addr: addr + SIZE as u64 / 2, rkey } };
    assert_eq!(near.send(a, &mut write), 0);
    near.success(13);
    near.fill(0, b"unharmed");
    assert_eq!(near.send(a, &mut wr(14, IBV_WR_SEND, &mut near.sge(0, 8))), 0);
    near.success(14);
    far.success(23);
    assert_eq!(far.read(0, 8), b"unharmed");
    assert_eq!(unsafe { warpline_ibv_dereg_mr(mr) }, 0);
    [a, b].into_iter().for_each(destroy);
}

#[test]
fn datagrams_for_unmapped_memory_are_dropped() {
    if std::env::var_os(CASE).is_some() {
        return drop_datagrams();
    }
    let roce = [("WARPLINE_VERBS_ROCE", "1")];
    let output = again("datagrams_for_unmapped_memory_are_dropped", "datagrams", &roce);
    assert_success("datagrams", &output);
}

fn drop_datagrams() {
    let lab = Lab::new();
    let (qp, ah) = datagrams(&lab);
    ready_for_datagrams(qp);
    let (at, mr) = mapped(&lab, SIZE);
    let (addr, lkey) = (at.expose_provenance() as u64, unsafe { (*mr).lkey });
    assert_eq!(lab.recv(qp, 20, &mut ibv_sge { addr, length: 4096, lkey }), 0);
    assert_eq!(lab.recv(qp, 21, &mut lab.sge(0, 4096)), 0);
    assert_eq!(unsafe { libc::munmap(at, SIZE) }, 0);
    for id in [10, 11] {
        send_datagram(&lab, qp, ah, id);
        let mut both = [lab.completion(), lab.completion()].map(|wc| (wc.wr_id, wc.status));
        both.sort_unstable();
        assert_eq!(both, [(id, IBV_WC_SUCCESS), (id + 10, IBV_WC_SUCCESS)]);
    }
    assert_eq!(unsafe { warpline_ibv_dereg_mr(mr) }, 0);
    assert_eq!(unsafe { warpline_ibv_destroy_ah(ah) }, 0);
    destroy(qp);
}

/// An adapter writes there all the same; a library cannot.
#[test]
fn what_arrives_for_protected_memory_ends_the_process() {
    if let Ok(case) = std::env::var(CASE) {
        return receive_protected(if case.ends_with("large") { LARGE } else { 8 });
    }
    let file = plain_tcp("protected");
    let tcp = [("WARPLINE_CONFIG", file.to_str().unwrap())];
    let roce = [("WARPLINE_VERBS_ROCE", "1")];
    for (case, variables) in [
        ("shared memory", &[][..]),
        ("shared memory, large", &[]),
        ("TCP", &tcp),
        ("RoCE", &roce),
        ("RoCE, large", &roce),
    ] {
        let output = again("what_arrives_for_protected_memory_ends_the_process", case, variables);
        let killed = output.status.signal() == Some(libc::SIGSEGV);
        assert!(killed, "{case}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    std::fs::remove_file(file).unwrap();
}

/// A message of so many octets arrives for memory that may not be written any more.
fn receive_protected(length: u32) {
    // The parent does not read core files.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = (near.qp(), far.qp());
    let (at, mr) = mapped(&far, SIZE);
    let (addr, lkey) = (at.expose_provenance() as u64, unsafe { (*mr).lkey });
    [a, b].into_iter().for_each(to_init);
    assert_eq!(far.recv(b, 20, &mut ibv_sge { addr, length, lkey }), 0);
    let gid = first_gid(&near);
    meet(a, gid, number(b));
    meet(b, gid, number(a));
    assert_eq!(unsafe { libc::mprotect(at, SIZE, libc::PROT_READ) }, 0);
    assert_eq!(near.send(a, &mut wr(10, IBV_WR_SEND, &mut near.sge(0, length))), 0);
    assert_ne!(far.completion().status, IBV_WC_SUCCESS);
    assert_eq!(unsafe { warpline_ibv_dereg_mr(mr) }, 0);
    [a, b].into_iter().for_each(destroy);
}

/// The octets are lost.
#[test]
fn a_send_from_unmapped_memory_ends_the_stream_with_a_cause() {
    if std::env::var_os(CASE).is_some() {
        return send_unmapped();
    }
    let file = plain_tcp("send");
    let tcp = [("WARPLINE_CONFIG", file.to_str().unwrap()), ("WARPLINE_LOG", "info")];
    let output = again("a_send_from_unmapped_memory_ends_the_stream_with_a_cause", "send", &tcp);
    assert_success("send", &output);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("the kernel cannot access the memory of a request"), "{log}");
    assert!(log.contains("local failure"), "this end: {log}");
    assert!(log.contains("the peer reset the connection"), "the peer: {log}");
    std::fs::remove_file(file).unwrap();
}

fn send_unmapped() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = (near.qp(), far.qp());
    let (at, mr) = mapped(&near, SIZE);
    let (addr, lkey) = (at.expose_provenance() as u64, unsafe { (*mr).lkey });
    [a, b].into_iter().for_each(to_init);
    assert_eq!(far.recv(b, 20, &mut far.sge(0, LARGE)), 0);
    let gid = first_gid(&near);
    meet(a, gid, number(b));
    meet(b, gid, number(a));
    assert_eq!(unsafe { libc::munmap(at, SIZE) }, 0);
    let mut sge = ibv_sge { addr, length: 16 << 10, lkey };
    assert_eq!(near.send(a, &mut wr(10, IBV_WR_SEND, &mut sge)), 0);
    assert_ne!(near.completion().status, IBV_WC_SUCCESS);
    // As with InfiniBand, only a send notices it.
    crate::processes::lose(&far, b);
    assert_eq!(unsafe { warpline_ibv_dereg_mr(mr) }, 0);
    [a, b].into_iter().for_each(destroy);
}

extern "C" fn plain(_: c_int) {
    unsafe { libc::_exit(7) };
}

extern "C" fn informed(_: c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    unsafe { libc::_exit(if (*info).si_signo == libc::SIGSEGV { 8 } else { 1 }) };
}

fn set_handler(handler: usize, flags: c_int) {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn other_faults_end_as_without_the_library() {
    if let Ok(case) = std::env::var(CASE) {
        return fault(&case);
    }
    let killed = |status: ExitStatus| status.signal() == Some(libc::SIGSEGV);
    let exits = |with: c_int| move |status: ExitStatus| status.code() == Some(with);
    let test = |case: &str, is_right: &dyn Fn(ExitStatus) -> bool| {
        let output = again("other_faults_end_as_without_the_library", case, &[]);
        assert!(is_right(output.status), "{case}: {}", output.status);
    };
    test("default", &killed);
    test("sent", &killed);
    test("its own store", &killed);
    test("ignored", &killed);
    test("sent and ignored", &exits(0));
    test("plain", &exits(7));
    test("informed", &exits(8));
    test("once", &exits(8));
}

/// A fault of the program itself, with the handler of the case.
fn fault(case: &str) {
    // The parent does not read core files.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    match case {
        "plain" => set_handler(plain as extern "C" fn(_) as usize, 0),
        "informed" | "once" => {
            let once = if case == "once" { libc::SA_RESETHAND } else { 0 };
            set_handler(informed as extern "C" fn(_, _, _) as usize, libc::SA_SIGINFO | once);
        }
        "ignored" | "sent and ignored" => set_handler(libc::SIG_IGN, 0),
        _ => set_handler(libc::SIG_DFL, 0),
    }
    let lab = Lab::new();
    let (at, _) = mapped(&lab, SIZE);
    assert_eq!(unsafe { libc::munmap(at, SIZE) }, 0);
    match case {
        "sent" | "sent and ignored" => assert_eq!(unsafe { libc::raise(libc::SIGSEGV) }, 0),
        // In memory that is registered, but not by the library.
        "its own store" => unsafe { at.cast::<c_int>().write_volatile(1) },
        _ => unsafe { std::ptr::without_provenance_mut::<c_int>(64).write_volatile(1) },
    }
}
