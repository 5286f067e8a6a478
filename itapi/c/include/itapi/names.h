/*
 * Names of version 1.0 and which of several versions a name without suffix means; entry points of
 * the Zurich layout.
 *
 * Part of it_api.h, which includes it.
 */
#ifndef ITAPI_NAMES_H
#define ITAPI_NAMES_H

/* Same meaning, renamed in 2.0. */
#define it_make_rdma_addr it_make_rdma_addr_absolute
#define it_lmr_sync_rdma_read it_lmr_flush_to_mem
#define it_lmr_sync_rdma_write it_lmr_refresh_from_mem
#define it_rmr_unbind it_rmr_unlink

/* Arguments differ between versions. */
#if defined(ITAPI_ENABLE_V21_BINDINGS)
#define it_lmr_create it_lmr_create21
#define it_rmr_create it_rmr_create20
#define it_rmr_bind it_rmr_link
#elif defined(ITAPI_ENABLE_V20_BINDINGS)
#define it_lmr_create it_lmr_create20
#define it_rmr_create it_rmr_create20
#define it_rmr_bind it_rmr_link
#else
#define it_lmr_create it_lmr_create10
#define it_rmr_create it_rmr_create10
#define it_rmr_bind it_rmr_bind10
#endif

/* Members that 2.0 renamed. */
#ifdef ITAPI_ENABLE_V10_BINDINGS
#define rdma_read_inflight_incoming rdma_read_ird
#define rdma_read_inflight_outgoing rdma_read_ord
#define ird_support ird_ord_ia_support
#define ord_support ird_ord_ia_support
#endif

/*
 * The Zurich layout has entry points of its own wherever a cookie, an event, an endpoint's state,
 * or a limit of private data passes, and for event dispatchers, which get other events.
 */
#ifdef ITAPI_ZRL_EXTENSIONS
#define it_ep_accept it_ep_accept_zrl
#define it_ep_connect it_ep_connect_zrl
#define it_ep_disconnect it_ep_disconnect_zrl
#define it_ep_query it_ep_query_zrl
#define it_evd_create it_evd_create_zrl
#define it_evd_dequeue it_evd_dequeue_zrl
#define it_evd_dequeue_n it_evd_dequeue_n_zrl
#define it_evd_wait it_evd_wait_zrl
#define it_ia_query it_ia_query_zrl
#define it_lmr_link it_lmr_link_zrl
#define it_lmr_unlink it_lmr_unlink_zrl
#define it_post_atomic it_post_atomic_zrl
#define it_post_rdma_read it_post_rdma_read_zrl
#define it_post_rdma_read_to_rmr it_post_rdma_read_to_rmr_zrl
#define it_post_rdma_write it_post_rdma_write_zrl
#define it_post_recv it_post_recv_zrl
#define it_post_recvfrom it_post_recvfrom_zrl
#define it_post_send it_post_send_zrl
#define it_post_send_and_unlink it_post_send_and_unlink_zrl
#define it_post_sendto it_post_sendto_zrl
#define it_reject it_reject_zrl
#define it_rmr_bind10 it_rmr_bind10_zrl
#define it_rmr_link it_rmr_link_zrl
#define it_rmr_unlink it_rmr_unlink_zrl
#define it_ud_service_request_handle_query it_ud_service_request_handle_query_zrl
#define itw_event_immediate itw_event_immediate_zrl
#define itw_event_text itw_event_text_zrl
#define itw_post_immediate itw_post_immediate_zrl
#define itw_post_rdma_write_with_immediate itw_post_rdma_write_with_immediate_zrl
#endif

#endif
