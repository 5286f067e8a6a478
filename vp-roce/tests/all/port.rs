//! Port 4791 of an address, which one process has.

use std::net::UdpSocket;

use vp_api::VpStatus;

use crate::alone::{alone, other, part};
use crate::end::{End, open};

#[test]
fn a_port_that_is_taken_is_named() {
    alone("port::a_port_that_is_taken_is_named", || {
        let taken = UdpSocket::bind("127.0.0.1:4791").unwrap();
        let end = End::new(64);
        let error = end.cm.listen("127.0.0.1:0".parse().unwrap(), 1).unwrap_err();
        assert_eq!(error.status, VpStatus::Os);
        for word in ["4791", "127.0.0.1", "another process", "127.0.0.0/8"] {
            assert!(error.detail.contains(word), "{error}");
        }
        // Another address is free, and so is this one when the other process has left it.
        end.listen("127.0.0.2:0");
        drop(taken);
        end.listen("127.0.0.1:0");
    });
}

/// A process that connects does not need the address that another one has.
#[test]
fn on_the_loopback_another_address_connects() {
    alone("port::on_the_loopback_another_address_connects", || {
        let _taken = UdpSocket::bind("127.0.0.1:4791").unwrap();
        let (near, far) = (End::new(64), End::new(64));
        let there = far.listen("127.0.0.2:0");
        std::thread::scope(|scope| {
            scope.spawn(|| far.accept().unwrap());
            near.connect(there);
        });
        let of = |end: &End| end.qp.query().unwrap().local.unwrap().ip();
        let local = of(&near);
        assert!(local.is_loopback() && local.to_string() != "127.0.0.1", "{local}");
        // An address has many sockets: the next connection takes one that the process has.
        let (near, far) = (End::new(64), End::new(64));
        let there = far.listen("127.0.0.2:0");
        std::thread::scope(|scope| {
            scope.spawn(|| far.accept().unwrap());
            near.connect(there);
        });
        assert!([local, there.ip()].contains(&of(&near)), "{}", of(&near));
    });
}

/// While one process finds that an address is taken, others join and listen.
#[test]
fn a_taken_port_does_not_hinder_others() {
    const TEST: &str = "port::a_taken_port_does_not_hinder_others";
    if part().as_deref() == Some("listens") {
        let end = End::new(64);
        end.listen("127.0.0.2:0");
        println!("it listens");
        loop {
            let (listener, _) = end.cm.listen("127.0.0.2:0".parse().unwrap(), 1).unwrap();
            end.cm.unlisten(listener).unwrap();
        }
    }
    alone(TEST, || {
        let _taken = UdpSocket::bind("127.0.0.1:4791").unwrap();
        let mut other = other(TEST, "listens");
        other.says("it listens");
        let refused = End::new(64).cm.listen("127.0.0.1:0".parse().unwrap(), 1).unwrap_err();
        assert!(refused.detail.contains("4791"), "{refused}");
        assert!(other.runs(), "it could not listen meanwhile");
    });
}

#[test]
fn the_port_is_free_when_the_last_device_is_closed() {
    alone("port::the_port_is_free_when_the_last_device_is_closed", || {
        let end = End::new(64);
        end.listen("127.0.0.1:0");
        drop(end);
        drop(UdpSocket::bind("127.0.0.1:4791").unwrap());
        // The process can open it anew.
        End::on(open(), 64).listen("127.0.0.1:0");
    });
}

#[test]
fn a_connection_manager_without_its_device_refuses() {
    alone("port::a_connection_manager_without_its_device_refuses", || {
        let end = End::new(64);
        let (cm, qp) = (end.cm.clone(), end.qp.clone());
        drop(end);
        let gone = VpStatus::InvalidHandle;
        assert_eq!(cm.listen("127.0.0.1:0".parse().unwrap(), 1).unwrap_err().status, gone);
        let params = vp_api::NativeParams { private_data: Vec::new(), ird: 1, ord: 1 };
        let connected = cm.connect(qp.id(), "127.0.0.1:9".parse().unwrap(), params);
        assert_eq!(connected.unwrap_err().status, gone);
        assert_eq!(qp.query().unwrap_err().status, gone);
        assert_eq!(qp.post_recv(&[]).unwrap_err().status, gone);
    });
}

#[test]
fn nobody_listens() {
    alone("port::nobody_listens", || {
        let end = End::new(64);
        let to = end.listen("127.0.0.1:0");
        let elsewhere = std::net::SocketAddr::new(to.ip(), to.port() + 1);
        let params = vp_api::NativeParams { private_data: Vec::new(), ird: 1, ord: 1 };
        end.cm.connect(end.qp.id(), elsewhere, params.clone()).unwrap();
        let vp_api::NativeEvent::Failed { reason, .. } = end.event() else { panic!("it failed") };
        assert!(reason.contains("no RoCE listener"), "{reason}");
        // No process has the port there.
        end.cm.connect(end.qp.id(), "127.0.0.7:9".parse().unwrap(), params).unwrap();
        let vp_api::NativeEvent::Failed { reason, .. } = end.event() else { panic!("it failed") };
        assert!(reason.contains("does not reply") && reason.contains("127.0.0.7"), "{reason}");
    });
}
