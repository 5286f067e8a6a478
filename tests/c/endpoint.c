/*
 * Tests of endpoints: creation, attributes, states; shared receive queues.
 */
#include "check.h"

#include <string.h>

static it_status_t create(const struct side *side, it_ep_rc_creation_flags_t flags,
                          const it_ep_attributes_t *attributes, it_ep_handle_t *ep)
{
    return it_ep_rc_create(side->pz, side->sends, side->receives, side->conn, flags, attributes,
                           ep);
}

static void creating(const struct side *side)
{
    it_ep_attributes_t attributes = check_attributes();
    it_ep_handle_t ep;
    EXPECT(IT_ERR_INVALID_PZ, it_ep_rc_create(NULL, side->sends, side->receives, side->conn,
                                              IT_EP_NO_FLAG, &attributes, &ep));
    EXPECT(IT_ERR_INVALID_REQ_EVD, it_ep_rc_create(side->pz, NULL, side->receives, side->conn,
                                                   IT_EP_NO_FLAG, &attributes, &ep));
    EXPECT(IT_ERR_INVALID_RECV_EVD, it_ep_rc_create(side->pz, side->sends, NULL, side->conn,
                                                    IT_EP_NO_FLAG, &attributes, &ep));
    EXPECT(IT_ERR_INVALID_CONN_EVD, it_ep_rc_create(side->pz, side->sends, side->receives, NULL,
                                                    IT_EP_NO_FLAG, &attributes, &ep));
    EXPECT(IT_ERR_INVALID_EVD_TYPE, it_ep_rc_create(side->pz, side->conn, side->receives,
                                                    side->conn, IT_EP_NO_FLAG, &attributes, &ep));
    EXPECT(IT_ERR_INVALID_EVD_TYPE, it_ep_rc_create(side->pz, side->sends, side->receives,
                                                    side->sends, IT_EP_NO_FLAG, &attributes, &ep));
    EXPECT(IT_ERR_FAULT, create(side, IT_EP_NO_FLAG, NULL, &ep));
    EXPECT(IT_ERR_FAULT, create(side, IT_EP_NO_FLAG, &attributes, NULL));
    EXPECT(IT_ERR_INVALID_FLAGS, create(side, (it_ep_rc_creation_flags_t)0x20, &attributes, &ep));
    EXPECT(IT_ERR_INVALID_SRQ, create(side, IT_EP_SRQ, &attributes, &ep));
    attributes.max_request_dtos = (size_t)1 << 40;
    EXPECT(IT_ERR_RESOURCE_REQ_DTO, create(side, IT_EP_NO_FLAG, &attributes, &ep));
    attributes = check_attributes();
    attributes.max_recv_dtos = (size_t)1 << 40;
    EXPECT(IT_ERR_RESOURCE_RECV_DTO, create(side, IT_EP_NO_FLAG, &attributes, &ep));
    attributes = check_attributes();
    attributes.srv.rc.rdma_read_ird = 1 << 30;
    EXPECT(IT_ERR_RESOURCE_IRD, create(side, IT_EP_NO_FLAG, &attributes, &ep));
    attributes = check_attributes();
    attributes.srv.rc.rdma_read_ord = 1 << 30;
    EXPECT(IT_ERR_RESOURCE_ORD, create(side, IT_EP_NO_FLAG, &attributes, &ep));
    attributes = check_attributes();
    attributes.max_send_segments = 100000;
    EXPECT(IT_ERR_RESOURCE_SSEG, create(side, IT_EP_NO_FLAG, &attributes, &ep));
    attributes = check_attributes();
    attributes.max_recv_segments = 100000;
    EXPECT(IT_ERR_RESOURCE_RSEG, create(side, IT_EP_NO_FLAG, &attributes, &ep));
    /* Values of real applications: more read segments than supported, watermark 0 for none. */
    attributes = check_attributes();
    attributes.srv.rc.max_rdma_read_segments = 16;
    attributes.srv.rc.hard_hi_watermark = 0;
    MUST(create(side, (it_ep_rc_creation_flags_t)0, &attributes, &ep));
    EXPECT(IT_ERR_EVD_BUSY, it_evd_free(side->sends));
    EXPECT(IT_SUCCESS, it_ep_free(ep));
    EXPECT(IT_ERR_INVALID_EP, it_ep_free(ep));
    EXPECT(IT_ERR_INVALID_EP, it_ep_free(NULL));
    EXPECT(IT_ERR_INVALID_EP, it_ep_free((it_ep_handle_t)side->pz));
}

static it_ep_state_rc_t state(const struct side *side)
{
    it_ep_param_t params;
    memset(&params, 0xff, sizeof params);
    EXPECT(IT_SUCCESS, it_ep_query(side->ep, IT_EP_PARAM_STATE, &params));
    return params.ep_state.rc;
}

static void attributes(const struct side *side)
{
    it_ep_param_t params;
    it_ep_attributes_t changes = check_attributes();
    EXPECT(IT_SUCCESS, it_ep_query(side->ep, IT_EP_PARAM_ALL, &params));
    CHECK(params.ia == side->ia && params.pz == side->pz);
    CHECK(params.request_sevd == side->sends && params.recv_sevd == side->receives);
    CHECK(params.connect_sevd == side->conn && params.service_type == IT_RC_SERVICE);
    CHECK(params.ep_state.rc == IT_EP_STATE_UNCONNECTED);
    CHECK(params.attr.max_request_dtos >= DEPTH && params.attr.max_recv_dtos >= DEPTH);
    CHECK(params.attr.srv.rc.rdma_read_ird >= 4 && params.attr.srv.rc.rdma_read_ord >= 4);
    CHECK(params.attr.srv.rc.rdma_write_enable == IT_TRUE);
    changes.srv.rc.rdma_read_ord = 2;
    changes.srv.rc.rdma_read_ird = 2;
    EXPECT(IT_SUCCESS, it_ep_modify(side->ep,
                                    (it_ep_param_mask_t)(IT_EP_PARAM_MAX_IRD | IT_EP_PARAM_MAX_ORD),
                                    &changes));
    EXPECT(IT_SUCCESS, it_ep_query(side->ep, IT_EP_PARAM_ALL, &params));
    CHECK(params.attr.srv.rc.rdma_read_ird == 2 && params.attr.srv.rc.rdma_read_ord == 2);
    EXPECT(IT_ERR_INVALID_MASK,
           it_ep_modify(side->ep, (it_ep_param_mask_t)0x40000000, &changes));
    EXPECT(IT_ERR_INVALID_MASK, it_ep_modify(side->ep, IT_EP_PARAM_IA, &changes));
    EXPECT(IT_ERR_INVALID_MASK, it_ep_query(side->ep, (it_ep_param_mask_t)0x40000000, &params));
    EXPECT(IT_ERR_FAULT, it_ep_modify(side->ep, IT_EP_PARAM_MAX_ORD, NULL));
    EXPECT(IT_ERR_FAULT, it_ep_query(side->ep, IT_EP_PARAM_ALL, NULL));
    EXPECT(IT_ERR_INVALID_EP, it_ep_modify(NULL, IT_EP_PARAM_MAX_ORD, &changes));
    EXPECT(IT_ERR_INVALID_EP, it_ep_query(NULL, IT_EP_PARAM_ALL, &params));
}

static void states(const struct side *active, const struct side *passive)
{
    it_lmr_triplet_t segment = piece(active, 0, 8);
    int round;
    EXPECT(IT_ERR_INVALID_EP_STATE, it_post_send(active->ep, &segment, 1, cookie(1), SIGNALLED));
    for (round = 0; round < 2; round++) {
        CHECK(state(active) == IT_EP_STATE_UNCONNECTED);
        sides_connect(active, passive);
        CHECK(state(active) == IT_EP_STATE_CONNECTED && state(passive) == IT_EP_STATE_CONNECTED);
        EXPECT(IT_ERR_INVALID_EP_STATE, it_ep_reset(active->ep));
        MUST(it_post_recv(active->ep, &segment, 1, cookie(3), SIGNALLED));
        EXPECT(IT_SUCCESS, it_ep_disconnect(passive->ep, NULL, 0));
        check_event(active->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
        check_event(passive->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
        check_completion(active->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_ERR_FLUSHED, 3);
        CHECK(state(active) == IT_EP_STATE_NONOPERATIONAL);
        MUST(it_post_send(active->ep, &segment, 1, cookie(2), SIGNALLED));
        check_completion(active->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_ERR_FLUSHED, 2);
        check_reset(active->ep);
        check_reset(passive->ep);
    }
    EXPECT(IT_ERR_INVALID_EP, it_ep_reset(NULL));
}

static void shared_queues(struct side *active, struct side *passive)
{
    it_srq_handle_t srq;
    it_srq_param_t params;
    it_evd_handle_t affiliated;
    it_ep_attributes_t attributes = check_attributes();
    it_lmr_triplet_t segment = piece(passive, 0, 64), out = piece(active, 0, 5);
    it_event_t event;
    it_handle_type_enum_t kind;
    EXPECT(IT_ERR_INVALID_PZ, it_srq_create(NULL, 1, 8, &srq));
    EXPECT(IT_ERR_FAULT, it_srq_create(passive->pz, 1, 8, NULL));
    MUST(it_srq_create(passive->pz, 1, 8, &srq));
    EXPECT(IT_SUCCESS, it_get_handle_type(srq, &kind));
    CHECK(kind == IT_HANDLE_TYPE_SRQ);
    EXPECT(IT_SUCCESS, it_srq_query(srq, IT_SRQ_PARAM_ALL, &params));
    CHECK(params.ia == passive->ia && params.pz == passive->pz);
    CHECK(params.max_recv_dtos >= 8 && params.max_recv_segs >= 1 && params.low_watermark == 0);
    EXPECT(IT_ERR_INVALID_MASK, it_srq_query(srq, (it_srq_param_mask_t)0x400, &params));
    EXPECT(IT_ERR_FAULT, it_srq_query(srq, IT_SRQ_PARAM_ALL, NULL));
    EXPECT(IT_ERR_INVALID_SRQ, it_srq_query(NULL, IT_SRQ_PARAM_ALL, &params));
    MUST(it_evd_create(passive->ia, IT_ASYNC_AFF_EVENT_STREAM, (it_evd_flags_t)0, 8, 1, NULL,
                       &affiliated, NULL));
    EXPECT(IT_SUCCESS, it_ep_free(passive->ep));
    attributes.srv.rc.srq = srq;
    MUST(create(passive, IT_EP_SRQ, &attributes, &passive->ep));
    EXPECT(IT_ERR_SRQ_BUSY, it_srq_free(srq));
    EXPECT(IT_ERR_INVALID_RECV_DTO,
           it_post_recv(passive->ep, &segment, 1, cookie(1), SIGNALLED));
    MUST(it_post_recv(srq, &segment, 1, cookie(1), SIGNALLED));
    MUST(it_post_recv(srq, &segment, 1, cookie(2), SIGNALLED));
    params.low_watermark = 2;
    EXPECT(IT_SUCCESS, it_srq_modify(srq, IT_SRQ_PARAM_LOW_WATERMARK, &params));
    EXPECT(IT_ERR_INVALID_MASK, it_srq_modify(srq, IT_SRQ_PARAM_IA, &params));
    EXPECT(IT_ERR_FAULT, it_srq_modify(srq, IT_SRQ_PARAM_LOW_WATERMARK, NULL));
    /* It has two receives. */
    params.max_recv_dtos = 1;
    params.low_watermark = 0;
    EXPECT(IT_ERR_INVALID_SRQ_SIZE, it_srq_modify(srq, IT_SRQ_PARAM_MAX_RECV_DTO, &params));
    EXPECT(IT_ERR_INVALID_SRQ, it_srq_modify(NULL, IT_SRQ_PARAM_LOW_WATERMARK, &params));
    sides_connect(active, passive);
    MUST(it_post_send(active->ep, &out, 1, cookie(9), SIGNALLED));
    check_completion(active->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 9);
    event = check_completion(passive->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 1);
    CHECK(event.dto_cmpl.ep == passive->ep && event.dto_cmpl.transferred_length == 5);
    event = check_event(affiliated, IT_ASYNC_AFF_SRQ_LOW_WATERMARK);
    CHECK(event.aff_async.cause.srq == srq);
    EXPECT(IT_SUCCESS, it_ep_disconnect(active->ep, NULL, 0));
    check_event(active->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    check_event(passive->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    EXPECT(IT_SUCCESS, it_ep_free(passive->ep));
    EXPECT(IT_SUCCESS, it_srq_free(srq));
    EXPECT(IT_ERR_INVALID_SRQ, it_srq_free(srq));
    EXPECT(IT_ERR_INVALID_SRQ, it_srq_free(NULL));
    EXPECT(IT_SUCCESS, it_evd_free(affiliated));
    passive->ep = check_ep(passive);
}

/* Freeing an endpoint removes its completions, so that others have all the slots. */
static void leaving(struct side *active, const struct side *passive)
{
    enum { DEPTH = 8, IN_TURN = 12 };
    it_ep_attributes_t attributes = check_attributes();
    it_lmr_triplet_t segment = piece(active, 0, 64);
    it_evd_handle_t both;
    attributes.max_request_dtos = attributes.max_recv_dtos = DEPTH;
    MUST(it_evd_create(active->ia, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, 2 * DEPTH, 1, NULL,
                       &both, NULL));
    EXPECT(IT_SUCCESS, it_ep_free(active->ep));
    for (unsigned round = 0; round < IN_TURN; round++) {
        MUST(it_ep_rc_create(active->pz, both, both, active->conn, IT_EP_NO_FLAG, &attributes,
                             &active->ep));
        for (unsigned n = 0; n < DEPTH; n++)
            MUST(it_post_recv(active->ep, &segment, 1, cookie(n), SIGNALLED));
        sides_connect(active, passive);
        EXPECT(IT_SUCCESS, it_ep_disconnect(active->ep, NULL, 0));
        check_event(active->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
        check_event(passive->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
        EXPECT(IT_SUCCESS, it_ep_free(active->ep));
        check_reset(passive->ep);
    }
    check_empty(both);
    EXPECT(IT_SUCCESS, it_evd_free(both));
    active->ep = check_ep(active);
}

int main(void)
{
    struct side active, passive;
    side_open(&active);
    side_open(&passive);
    creating(&active);
    states(&active, &passive);
    attributes(&active);
    leaving(&active, &passive);
    shared_queues(&active, &passive);
    side_close(&active);
    side_close(&passive);
    return checked("endpoint");
}
