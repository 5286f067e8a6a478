//! Tests of regions: registration, sharing, buffer lists, changes, queries.

use super::*;

fn query(lmr: it_lmr_handle_t) -> it_lmr_param_t {
    let mut params = it_lmr_param_t::zeroed();
    assert_eq!(c!(it_lmr_query(lmr, IT_LMR_PARAM_ALL, &raw mut params)), IT_SUCCESS, "{}", last());
    params
}

#[test]
fn a_query_returns_the_parameters_of_a_region() {
    let side = Side::new();
    let memory = side.memory(100, IT_PRIV_LOCAL | IT_PRIV_REMOTE_READ);
    let params = query(memory.lmr);
    assert_eq!((params.ia, params.pz), (side.ia, side.pz));
    assert_eq!((params.addr, params.length), (memory.first.cast(), 100));
    assert_eq!((params.actual_addr, params.actual_length), (params.addr, 100));
    assert_eq!(params.privs, IT_PRIV_LOCAL | IT_PRIV_REMOTE_READ);
    assert_eq!((params.rmr_context, params.linked), (memory.context, IT_TRUE));
    assert_eq!((params.addr_mode, params.flags), (IT_ADDR_MODE_ABSOLUTE, IT_LMR_FLAG_NONE));
    let segments = [memory.whole(), memory.part(100, 0)];
    assert_eq!(c!(it_lmr_flush_to_mem(segments.as_ptr(), 2)), IT_SUCCESS, "{}", last());
    assert_eq!(c!(it_lmr_refresh_from_mem(segments.as_ptr(), 2)), IT_SUCCESS);
    let outside = memory.part(1, 100);
    assert_eq!(c!(it_lmr_flush_to_mem(&outside, 1)), IT_ERR_RANGE);
    assert_eq!(c!(it_lmr_flush_to_mem(null(), 0)), IT_ERR_INVALID_NUM_SEGMENTS);
}

#[test]
fn a_region_changes_what_it_covers() {
    let side = Side::new();
    let other = make!(it_pz_create(side.ia));
    let memory = side.memory(100, IT_PRIV_LOCAL);
    let mut asked = it_lmr_param_t::zeroed();
    (asked.length, asked.privs, asked.pz) = (50, IT_PRIV_ALL, other);
    let mask = IT_LMR_PARAM_LENGTH | IT_LMR_PARAM_MEM_PRIV | IT_LMR_PARAM_PZ;
    assert_eq!(c!(it_lmr_modify(memory.lmr, mask, &asked)), IT_SUCCESS, "{}", last());
    let params = query(memory.lmr);
    assert_eq!((params.length, params.privs, params.pz), (50, IT_PRIV_ALL, other));
    assert_ne!(params.rmr_context, memory.context);
    let beyond = memory.part(0, 51);
    assert_eq!(c!(it_lmr_flush_to_mem(&beyond, 1)), IT_ERR_RANGE);
    asked.privs = IT_PRIV_REMOTE;
    let refused = c!(it_lmr_modify(memory.lmr, IT_LMR_PARAM_MEM_PRIV, &asked));
    assert_eq!(refused, IT_ERR_INVALID_PRIVS);
    let refused = c!(it_lmr_modify(memory.lmr, IT_LMR_PARAM_SHARED_ID, &asked));
    assert_eq!(refused, IT_ERR_INVALID_MASK);
    assert_eq!(query(memory.lmr).linked, IT_TRUE);
    assert_eq!(it_pz_free(other), IT_ERR_PZ_BUSY);
    assert_eq!(it_lmr_free(memory.lmr), IT_SUCCESS);
    assert_eq!(it_pz_free(other), IT_SUCCESS);
}

#[test]
fn regions_with_one_id_share_memory() {
    let side = Side::new();
    let memory = side.memory(64, IT_PRIV_LOCAL);
    let shared = |id, length| {
        let (mut lmr, mut context) = (null_mut(), 0);
        let (flags, privs) = (IT_LMR_FLAG_SHARED, IT_PRIV_ALL);
        let out = (&raw mut lmr, &raw mut context);
        let first = memory.first;
        let made = c!(it_lmr_create10(side.pz, first, length, privs, flags, id, out.0, out.1));
        assert_eq!(made, IT_SUCCESS, "{}", last());
        (lmr, context)
    };
    let [one, two, three] = [shared(7, 64), shared(7, 64), shared(8, 64)];
    assert_ne!(one.1, two.1);
    assert_eq!((query(two.0).shared_id, query(two.0).flags), (7, IT_LMR_FLAG_SHARED));
    // A shared region can never be unlinked; they may be freed in any order.
    assert_eq!(it_lmr_free(one.0), IT_SUCCESS);
    let other = shared(7, 64);
    for lmr in [two.0, three.0, other.0, shared(7, 32).0] {
        assert_eq!(query(lmr).linked, IT_TRUE);
        assert_eq!(it_lmr_free(lmr), IT_SUCCESS);
    }
}

#[test]
fn a_buffer_list_is_one_range() {
    let side = Side::new();
    let memory = side.memory(96, IT_PRIV_LOCAL);
    let mut blocks = [0, 32, 64].map(|n| memory.first.wrapping_add(n).cast());
    let ce_list = it_iobl_ce_list { list_elt: blocks.as_mut_ptr(), elt_len: 32 };
    let list = it_iobl_list { ce_list };
    let mut iobl = it_iobl_t { iobl_type: IT_IOBL_BLOCK_LIST, list, num_elts: 3, fbo: 8 };
    let (flags, privs, mode) = (IT_LMR_FLAG_NONE, IT_PRIV_ALL, IT_ADDR_MODE_RELATIVE);
    let mut create = |length, addr| {
        let mut lmr = null_mut();
        let (list, out) = (&raw mut iobl, &raw mut lmr);
        let pz = side.pz;
        let made =
            c!(it_lmr_create21(pz, addr, list, length, mode, privs, flags, 0, out, null_mut()));
        (made, lmr)
    };
    assert_eq!(create(89, null_mut()).0, IT_ERR_INVALID_IOBL);
    let (made, lmr) = create(88, null_mut());
    assert_eq!(made, IT_SUCCESS, "{}", last());
    let params = query(lmr);
    assert_eq!((params.iobl_num_elts, params.iobl_type), (3, IT_IOBL_BLOCK_LIST));
    assert_eq!((params.addr.addr(), params.length), (memory.first.addr() + 8, 88));
    assert_eq!(it_lmr_free(lmr), IT_SUCCESS);
}

#[test]
fn each_wrong_argument_has_its_status() {
    let side = Side::new();
    let memory = side.memory(64, IT_PRIV_LOCAL);
    let create = |first: *mut u8, length, mode, privs, flags| {
        let mut lmr = null_mut();
        let (pz, out) = (side.pz, &raw mut lmr);
        c!(it_lmr_create20(pz, first, length, mode, privs, flags, 0, out, null_mut()))
    };
    let (first, local) = (memory.first, IT_PRIV_LOCAL);
    assert_eq!(create(null_mut(), 1, 0, local, 1), IT_ERR_FAULT);
    assert_eq!(create(object::handle(16), 64, 0, local, 1), IT_ERR_FAULT);
    assert_eq!(create(object::handle(u64::MAX), 64, 0, local, 1), IT_ERR_FAULT);
    assert_eq!(create(first, 0, 0, local, 1), IT_ERR_INVALID_LENGTH);
    assert_eq!(create(first, u64::MAX, 0, local, 1), IT_ERR_RESOURCE_LMR_LENGTH);
    assert_eq!(create(first, 64, 2, local, 1), IT_ERR_INVALID_ADDR_MODE);
    assert_eq!(create(first, 64, 0, 0x20, 1), IT_ERR_INVALID_PRIVS);
    assert_eq!(create(first, 64, 0, IT_PRIV_REMOTE, 1), IT_ERR_INVALID_PRIVS);
    assert_eq!(create(first, 64, 0, local, 0x10), IT_ERR_INVALID_FLAGS);
    let made = c!(it_lmr_create10(side.pz, first, 64, local, 1, 0, null_mut(), null_mut()));
    assert_eq!(made, IT_ERR_FAULT);
    let mut lmr = null_mut();
    let shared = c!(it_lmr_create_unlinked(side.pz, 1, IT_LMR_FLAG_SHARED, 0, &raw mut lmr));
    assert_eq!(shared, IT_ERR_INVALID_FLAGS);
}
