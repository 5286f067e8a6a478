//! Tests of adapters, zones, contexts, mappings, datagrams, and a forked child.

use std::ffi::{CStr, c_void};

use super::*;
use crate::context::{it_get_consumer_context, it_get_handle_type, it_set_consumer_context};
use crate::info::{it_ia_info_free, it_ia_query, it_ia_query_zrl};
use crate::interfaces::it_interface_list;
use crate::mapping::{it_mem_map, it_mem_unmap};
use crate::path;
use crate::path::it_get_pathinfo;
use crate::ptr::Plain;
use crate::ud::{address as ah, endpoint as ud_ep, service as svc};

// [it_ia_create] [it_ia_free]
#[test]
fn adapters_open_by_name_and_version_and_close_once() {
    let mut ia = null_mut();
    // SAFETY: constant strings, and room for a handle.
    let mut create = |name: &CStr, major, minor| unsafe {
        it_ia_create(name.as_ptr(), major, minor, &raw mut ia)
    };
    assert_eq!(create(c"no such device", 2, 1), IT_ERR_INVALID_NAME);
    assert_eq!(create(c"vp_softrdma", 3, 0), IT_ERR_INVALID_MAJOR_VERSION);
    assert_eq!(create(c"vp_softrdma", 2, 2), IT_ERR_INVALID_MINOR_VERSION);
    assert_eq!(create(c"vp_softrdma", 1, 0), IT_SUCCESS);
    let other: *mut it_ia_handle_s = ia;
    assert_eq!(it_ia_free(other), IT_SUCCESS);
    assert_eq!(it_ia_free(other), IT_ERR_INVALID_IA);
    assert_eq!(it_ia_free(null_mut()), IT_ERR_INVALID_IA);
    // SAFETY: NULL is allowed by the contract.
    let nowhere = unsafe { it_ia_create(c"vp_softrdma".as_ptr(), 2, 0, null_mut()) };
    assert_eq!(nowhere, IT_ERR_FAULT);
    // SAFETY: as above.
    let nameless = unsafe { it_ia_create(null(), 2, 0, &raw mut ia) };
    assert_eq!(nameless, IT_ERR_INVALID_NAME);
}

// [it_ia_free]
#[test]
fn one_of_two_threads_frees_an_adapter_with_all_that_is_in_it() {
    let ia = Adapter::new();
    let pz = zone(&ia);
    let handle = ia.0.addr();
    let free = || it_ia_free(std::ptr::with_exposed_provenance_mut(handle));
    let statuses = std::thread::scope(|scope| {
        let other = scope.spawn(free);
        [free(), warpline_patience::within("the other thread to free it", || other.join().unwrap())]
    });
    assert!(
        statuses.contains(&IT_SUCCESS) && statuses.contains(&IT_ERR_INVALID_IA),
        "{statuses:?}"
    );
    assert_eq!(it_pz_free(pz), IT_ERR_INVALID_PZ);
}

// [it_interface_list]
#[test]
fn interfaces_are_listed_as_far_as_there_is_room() {
    let mut list = [it_interface_t::zeroed(); 4];
    let (mut count, mut total) = (4, 0);
    // SAFETY: room for four.
    unsafe { it_interface_list(list.as_mut_ptr(), &raw mut count, &raw mut total) };
    assert_eq!(count, total);
    // SAFETY: it ends with NUL.
    let name = |one: &it_interface_t| unsafe { CStr::from_ptr(one.name.as_ptr()) }.to_owned();
    assert!(list[..count].iter().any(|one| name(one).as_c_str() == c"vp_softrdma"));
    count = 0;
    // SAFETY: room for none.
    unsafe { it_interface_list(null_mut(), &raw mut count, &raw mut total) };
    assert!(count == 0 && total > 0);
    // SAFETY: NULL is allowed by the contract.
    unsafe { it_interface_list(null_mut(), null_mut(), null_mut()) };
}

// [it_ia_query] [it_ia_info_free]
#[test]
fn an_adapter_returns_its_limits_in_a_block_that_is_freed() {
    let ia = Adapter::new();
    let mut info = null_mut();
    // SAFETY: room for a pointer.
    assert_eq!(unsafe { it_ia_query(ia.0, &raw mut info) }, IT_SUCCESS);
    // SAFETY: the block is ours until it is freed.
    let block = unsafe { info.read() };
    assert_eq!((block.api_major_version, block.api_minor_version), (2, 1));
    assert_eq!(block.transport_type, IT_IWARP_TCP_TRANSPORT);
    assert_eq!(block.connect_private_data_len, 256);
    assert!(block.num_spigots > 0);
    // SAFETY: as many as it says.
    let spigot = |n| unsafe { block.spigot_info.wrapping_add(n).read() };
    let all: Vec<_> = (0..block.num_spigots).map(spigot).collect();
    assert!(all.iter().enumerate().all(|(n, spigot)| spigot.spigot_id == n));
    assert!(all.iter().any(|spigot| spigot.num_net_addr > 0 && spigot.spigot_online == IT_TRUE));
    it_ia_info_free(info);
    it_ia_info_free(info);
    it_ia_info_free(null_mut());
    it_ia_info_free(std::ptr::without_provenance_mut(0x1234));
    // SAFETY: room for a pointer.
    assert_eq!(unsafe { it_ia_query_zrl(ia.0, &raw mut info) }, IT_SUCCESS);
    // SAFETY: the block is ours until it is freed.
    assert_eq!(unsafe { info.read() }.connect_private_data_len, 64);
    it_ia_info_free(info);
    // SAFETY: NULL is allowed by the contract.
    assert_eq!(unsafe { it_ia_query(ia.0, null_mut()) }, IT_ERR_FAULT);
    // SAFETY: as above.
    assert_eq!(unsafe { it_ia_query(null_mut(), &raw mut info) }, IT_ERR_INVALID_IA);
}

const WITHOUT_DESCRIPTORS: &str = "ITAPI_TEST_WITHOUT_DESCRIPTORS";

// [it_ia_query]: in a process of its own, which may open 64.
#[test]
fn without_descriptors_a_query_is_refused() {
    let test = "tests::adapters::a_process_without_descriptors";
    let run = format!("ulimit -n 64; {WITHOUT_DESCRIPTORS}=1 exec \"$0\" --exact {test}");
    let me = std::env::current_exe().unwrap();
    let output = std::process::Command::new("sh").arg("-c").arg(run).arg(me).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

/// Not a test: what the one above runs.
#[test]
fn a_process_without_descriptors() {
    if std::env::var_os(WITHOUT_DESCRIPTORS).is_none() {
        return;
    }
    let ia = Adapter::new();
    let mut info = null_mut();
    let open = || std::fs::File::open("/dev/null").ok();
    let hoard: Vec<_> = std::iter::from_fn(open).collect();
    // SAFETY: room for a pointer.
    assert_eq!(unsafe { it_ia_query(ia.0, &raw mut info) }, IT_ERR_RESOURCES);
    drop(hoard);
    // SAFETY: room for a pointer.
    assert_eq!(unsafe { it_ia_query(ia.0, &raw mut info) }, IT_SUCCESS);
    it_ia_info_free(info);
}

// [it_pz_create] [it_pz_free] [it_pz_query]
#[test]
fn a_query_returns_the_adapter_of_a_zone() {
    let ia = Adapter::new();
    let pz = zone(&ia);
    let mut params = it_pz_param_t::zeroed();
    // SAFETY: room for the parameters.
    let mut query = |mask| unsafe { it_pz_query(pz, mask, &raw mut params) };
    assert_eq!(query(0x10), IT_ERR_INVALID_MASK);
    assert_eq!(query(IT_PZ_PARAM_ALL), IT_SUCCESS);
    assert_eq!(params.ia, ia.0);
    assert_eq!(it_pz_free(ia.0.cast()), IT_ERR_INVALID_PZ);
    assert_eq!(it_pz_free(pz), IT_SUCCESS);
    assert_eq!(it_pz_free(pz), IT_ERR_INVALID_PZ);
    // SAFETY: NULL is allowed by the contract.
    assert_eq!(unsafe { it_pz_create(ia.0, null_mut()) }, IT_ERR_FAULT);
}

// [it_get_consumer_context] [it_set_consumer_context] [it_get_handle_type]
#[test]
fn every_handle_has_a_type_and_may_have_a_context() {
    let ia = Adapter::new();
    let pz = zone(&ia);
    let mut kind = 77;
    // SAFETY: room for a number.
    let mut type_of = |handle: *mut c_void| unsafe { it_get_handle_type(handle, &raw mut kind) };
    assert_eq!(type_of(pz.cast()), IT_SUCCESS);
    assert_eq!(type_of(null_mut()), IT_ERR_INVALID_HANDLE);
    assert_eq!(kind, IT_HANDLE_TYPE_PZ);
    let mut context = it_context_t::zeroed();
    // SAFETY: room for a context.
    let mut get = || unsafe { it_get_consumer_context(pz.cast(), &raw mut context) };
    assert_eq!(get(), IT_ERR_NO_CONTEXT);
    let mine = it_context_t { index: 0x0123_4567_89ab_cdef };
    assert_eq!(it_set_consumer_context(pz.cast(), mine), IT_SUCCESS);
    assert_eq!(get(), IT_SUCCESS);
    // SAFETY: plain data.
    assert_eq!(unsafe { context.index }, 0x0123_4567_89ab_cdef);
    assert_eq!(it_set_consumer_context(null_mut(), mine), IT_ERR_INVALID_HANDLE);
}

// [it_mem_map] [it_mem_unmap]
#[test]
fn memory_is_mapped_and_unmapped_once() {
    let ia = Adapter::new();
    let memory = vec![0u8; 10_000];
    let at = memory.as_ptr().cast_mut().cast::<c_void>();
    let (mut address, mut mapped) = (null_mut(), 0);
    // SAFETY: room for both results.
    let mut map = |at: *mut c_void, space, len| unsafe {
        it_mem_map(ia.0, at, space, len, &raw mut address, &raw mut mapped)
    };
    assert_eq!(map(null_mut(), 0, 10), IT_ERR_INVALID_ADDRESS);
    assert_eq!(map(at, 0, 0), IT_ERR_INVALID_LENGTH);
    assert_eq!(map(at, 0, usize::MAX), IT_ERR_INVALID_LENGTH);
    assert_eq!(map(at, u64::MAX, 10), IT_ERR_NO_PERMISSION);
    assert_eq!(map(at, 0, 10_000), IT_SUCCESS);
    assert_eq!((address.addr(), mapped), (at.addr(), 10_000));
    assert_eq!(it_mem_unmap(ia.0, address, 9_999), IT_ERR_INVALID_ADDRESS);
    assert_eq!(it_mem_unmap(ia.0, address, 10_000), IT_SUCCESS);
    assert_eq!(it_mem_unmap(ia.0, address, 10_000), IT_ERR_INVALID_ADDRESS);
}

// [it_get_pathinfo]
#[test]
fn paths_lead_from_a_spigots_addresses() {
    let ia = Adapter::new();
    let here = path::net_addr("127.0.0.1".parse().unwrap());
    let (mut count, mut total) = (1, 0);
    let mut found = it_path_t::zeroed();
    let mut ask = |spigot, to: &it_net_addr_t| {
        count = 1;
        let (count, total, found) = (&raw mut count, &raw mut total, &raw mut found);
        // SAFETY: room for one path.
        unsafe { it_get_pathinfo(ia.0, spigot, to, count, total, found) }
    };
    assert_eq!(ask(usize::MAX, &here), IT_ERR_INVALID_SPIGOT);
    let nobody = path::net_addr("0.0.0.0".parse().unwrap());
    assert_eq!(ask(0, &nobody), IT_ERR_ADDRESS);
    let strange = it_net_addr_t { addr_type: IT_IB_GID, ..here };
    assert_eq!(ask(0, &strange), IT_ERR_INVALID_NETADDR);
    let spigots = (0..).take_while(|spigot| ask(*spigot, &here) == IT_SUCCESS).count();
    assert!(spigots > 0);
    assert_eq!(ask(0, &here), IT_SUCCESS);
    assert!(total >= count);
}

// [it_ep_ud_create] [it_address_handle_create] [it_address_handle_free] [it_address_handle_modify]
// [it_address_handle_query] [it_ud_service_reply] [it_ud_service_request]
// [it_ud_service_request_handle_create] [it_ud_service_request_handle_free]
// [it_ud_service_request_handle_query]
#[test]
fn datagrams_are_refused_after_the_handles_were_checked() {
    let ia = Adapter::new();
    let pz = zone(&ia);
    let path = it_path_t::zeroed();
    let mut address = null_mut();
    // SAFETY: everything points to what it says.
    let mut create = |pz, flags| unsafe {
        ah::it_address_handle_create(pz, &raw const path, flags, &raw mut address)
    };
    assert_eq!(create(null_mut(), 0), IT_ERR_INVALID_PZ);
    assert_eq!(create(pz, 0x80), IT_ERR_INVALID_FLAGS);
    assert_eq!(create(pz, IT_AH_PATH_COMPLETE), IT_ERR_OP_NOT_SUPPORTED);
    assert_eq!(ah::it_address_handle_free(pz.cast()), IT_ERR_INVALID_AH);
    // SAFETY: NULL is allowed by the contract.
    assert_eq!(unsafe { ah::it_address_handle_modify(null_mut(), 1, null()) }, IT_ERR_INVALID_AH);
    // SAFETY: as above.
    let query = unsafe { ah::it_address_handle_query(null_mut(), 1, null_mut()) };
    assert_eq!(query, IT_ERR_INVALID_AH);
    // SAFETY: as above.
    let ep = unsafe { ud_ep::it_ep_ud_create(pz, null_mut(), null_mut(), null(), 0, null_mut()) };
    assert_eq!(ep, IT_ERR_INVALID_REQ_EVD);
    let nobody = it_remote_ep_info_t::zeroed();
    // SAFETY: as above.
    let reply = unsafe { svc::it_ud_service_reply(1, 0, nobody, null(), 0) };
    assert_eq!(reply, IT_ERR_OP_NOT_SUPPORTED);
    assert_eq!(svc::it_ud_service_request(null_mut()), IT_ERR_INVALID_UD_SVC);
    assert_eq!(svc::it_ud_service_request_handle_free(null_mut()), IT_ERR_INVALID_UD_SVC);
    let mut request = null_mut();
    let qualifier = it_conn_qual_t::zeroed();
    // SAFETY: everything points to what it says.
    let create = unsafe {
        svc::it_ud_service_request_handle_create(
            &raw const qualifier,
            null_mut(),
            &raw const path,
            null(),
            0,
            &raw mut request,
        )
    };
    assert_eq!(create, IT_ERR_INVALID_EVD);
    // SAFETY: NULL is allowed by the contract.
    let query = unsafe { svc::it_ud_service_request_handle_query(null_mut(), 1, null_mut()) };
    assert_eq!(query, IT_ERR_INVALID_UD_SVC);
}

#[test]
fn a_forked_child_is_refused() {
    let ia = Adapter::new();
    // SAFETY: the child only makes calls that take no lock before they refuse, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut pz = null_mut();
        // SAFETY: room for a handle.
        let created = unsafe { it_pz_create(ia.0, &raw mut pz) };
        let (mut count, mut total) = (4, 4);
        // SAFETY: nothing is listed, so no room is needed.
        unsafe { it_interface_list(null_mut(), &raw mut count, &raw mut total) };
        let right = created == IT_ERR_IA_CATASTROPHE && it_ia_free(ia.0) == created;
        let right = right && (count, total) == (0, 0);
        // SAFETY: ends the child at once, without the parent's exit handlers.
        unsafe { libc::_exit(if right { 0 } else { 1 }) }
    }
    let mut ended = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut ended, 0) }, child);
    assert!(libc::WIFEXITED(ended) && libc::WEXITSTATUS(ended) == 0, "{ended:#x}");
}
