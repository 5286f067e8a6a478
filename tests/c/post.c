/*
 * Tests of work requests: messages, RDMA, atomics, immediate data, flags, and refusals.
 */
#include "check.h"

#include <string.h>

static void messages(const struct side *from, const struct side *to)
{
    it_lmr_triplet_t out[2], in[2];
    it_event_t event;
    out[0] = piece(from, 0, 5);
    out[1] = piece(from, 100, 6);
    in[0] = piece(to, 0, 3);
    in[1] = piece(to, 200, 100);
    memcpy(from->memory, "hello", 5);
    memcpy(from->memory + 100, " world", 6);
    MUST(it_post_recv(to->ep, in, 2, cookie(1), SIGNALLED));
    MUST(it_post_send(from->ep, out, 2, cookie(2), SIGNALLED));
    event = check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 1);
    CHECK(event.dto_cmpl.transferred_length == 11 && event.dto_cmpl.ep == to->ep);
    CHECK(event.dto_cmpl.unlinked_mr_handle == NULL);
    event = check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    CHECK(event.dto_cmpl.ep == from->ep);
    CHECK(memcmp(to->memory, "hel", 3) == 0 && memcmp(to->memory + 200, "lo world", 8) == 0);
    /* An empty message, and an unsignalled request. */
    MUST(it_post_recv(to->ep, NULL, 0, cookie(3), SIGNALLED));
    MUST(it_post_send(from->ep, NULL, 0, cookie(4), (it_dto_flags_t)0));
    event = check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 3);
    CHECK(event.dto_cmpl.transferred_length == 0);
    check_empty(from->sends);
    /* Without IT_NOTIFY_FLAG there is an event, but no thread is woken. */
    MUST(it_post_recv(to->ep, in, 2, cookie(5), SIGNALLED));
    MUST(it_post_send(from->ep, out, 1, cookie(6),
                      (it_dto_flags_t)(IT_COMPLETION_FLAG | IT_SOLICITED_WAIT_FLAG)));
    check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 5);
    MUST(it_post_recv(to->ep, in, 2, cookie(7), SIGNALLED));
    MUST(it_post_send(from->ep, out, 1, cookie(8), SIGNALLED));
    check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 7);
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 6);
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 8);
}

/* max_dto_payload_size limits messages, and can be changed; 0 sets no limit. */
static void payloads(const struct side *from, const struct side *to)
{
    it_lmr_triplet_t out = piece(from, 0, 9), in = piece(to, 0, 64);
    it_ep_attributes_t attributes = check_attributes();
    it_ep_param_t params;
    attributes.max_dto_payload_size = 8;
    MUST(it_ep_modify(from->ep, IT_EP_PARAM_MAX_PAYLOAD, &attributes));
    EXPECT(IT_ERR_PAYLOAD_SIZE, it_post_send(from->ep, &out, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_PAYLOAD_SIZE, it_post_rdma_write(from->ep, &out, 1, cookie(1), SIGNALLED,
                                                   address(to, 0), to->rmr_context));
    EXPECT(IT_ERR_PAYLOAD_SIZE, it_post_rdma_read(from->ep, &out, 1, cookie(1), SIGNALLED,
                                                  address(to, 0), to->rmr_context));
    check_empty(from->sends);
    out.length = 8;
    MUST(it_post_recv(to->ep, &in, 1, cookie(2), SIGNALLED));
    MUST(it_post_send(from->ep, &out, 1, cookie(3), SIGNALLED));
    check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 3);
    attributes.max_dto_payload_size = 0;
    MUST(it_ep_modify(from->ep, IT_EP_PARAM_MAX_PAYLOAD, &attributes));
    EXPECT(IT_SUCCESS, it_ep_query(from->ep, IT_EP_PARAM_MAX_PAYLOAD, &params));
    CHECK(params.attr.max_dto_payload_size >= MEMORY);
}

static void rdma(const struct side *from, const struct side *to)
{
    it_lmr_triplet_t out[2], in = piece(from, 2000, 20);
    out[0] = piece(from, 0, 10);
    out[1] = piece(from, 1000, 10);
    memcpy(from->memory, "0123456789", 10);
    memcpy(from->memory + 1000, "abcdefghij", 10);
    MUST(it_post_rdma_write(from->ep, out, 2, cookie(1), SIGNALLED, address(to, 4000),
                            to->rmr_context));
    check_completion(from->sends, IT_DTO_RDMA_WRITE_CMPL_EVENT, IT_DTO_SUCCESS, 1);
    MUST(it_post_rdma_read(from->ep, &in, 1, cookie(2), SIGNALLED, address(to, 4000),
                           to->rmr_context));
    check_completion(from->sends, IT_DTO_RDMA_READ_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    CHECK(memcmp(from->memory + 2000, "0123456789abcdefghij", 20) == 0);
}

static void atomics(const struct side *from, const struct side *to)
{
    it_lmr_triplet_t result = piece(from, 0, 8);
    uint64_t there = 40, before = 0;
    memcpy(to->memory + 64, &there, 8);
    MUST(it_post_atomic(from->ep, IT_FETCH_AND_ADD, 2, 0, &result, cookie(1), SIGNALLED,
                        address(to, 64), to->rmr_context));
    check_completion(from->sends, IT_DTO_FETCH_ADD_CMPL_EVENT, IT_DTO_SUCCESS, 1);
    memcpy(&before, from->memory, 8);
    CHECK(before == 40);
    MUST(it_post_atomic(from->ep, IT_COMPARE_AND_SWAP, 7, 42, &result, cookie(2), SIGNALLED,
                        address(to, 64), to->rmr_context));
    check_completion(from->sends, IT_DTO_CMP_SWAP_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    memcpy(&before, from->memory, 8);
    memcpy(&there, to->memory + 64, 8);
    CHECK(before == 42 && there == 7);
    EXPECT(IT_ERR_INVALID_ATOMIC_OP,
           it_post_atomic(from->ep, (it_atomic_op_t)3, 1, 1, &result, cookie(3), SIGNALLED,
                          address(to, 64), to->rmr_context));
    EXPECT(IT_ERR_FAULT, it_post_atomic(from->ep, IT_FETCH_AND_ADD, 1, 1, NULL, cookie(3),
                                        SIGNALLED, address(to, 64), to->rmr_context));
    result.length = 7;
    EXPECT(IT_ERR_INVALID_LENGTH,
           it_post_atomic(from->ep, IT_FETCH_AND_ADD, 1, 1, &result, cookie(3), SIGNALLED,
                          address(to, 64), to->rmr_context));
    EXPECT(IT_ERR_INVALID_EP, it_post_atomic(NULL, IT_FETCH_AND_ADD, 1, 1, &result, cookie(3),
                                             SIGNALLED, address(to, 64), to->rmr_context));
}

/* The message invalidates the peer's window; a window is the sink of a read. */
static void unlinking(const struct side *from, const struct side *to)
{
    it_rmr_handle_t rmr;
    it_rmr_context_t context;
    it_rmr_triplet_t sink;
    it_lmr_triplet_t in = piece(to, 0, 100), out = piece(from, 0, 4);
    it_event_t event;
    it_rmr_param_t params;
    MUST(it_rmr_create20(to->pz, IT_RMR_TYPE_NARROW, &rmr));
    MUST(it_rmr_link(rmr, to->lmr, to->memory + 128, 128, IT_ADDR_MODE_ABSOLUTE,
                     (it_mem_priv_t)(IT_PRIV_REMOTE), to->ep, cookie(1), SIGNALLED, &context));
    check_completion(to->sends, IT_RMR_LINK_CMPL_EVENT, IT_DTO_SUCCESS, 1);
    memcpy(from->memory + 64, "into a window", 13);
    sink.rmr = rmr;
    sink.addr.abs = to->memory + 130;
    sink.length = 13;
    MUST(it_post_rdma_read_to_rmr(to->ep, &sink, 1, cookie(2), SIGNALLED, address(from, 64),
                                  from->rmr_context));
    check_completion(to->sends, IT_DTO_RDMA_READ_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    CHECK(memcmp(to->memory + 130, "into a window", 13) == 0);
    EXPECT(IT_ERR_INVALID_EP, it_post_rdma_read_to_rmr(NULL, &sink, 1, cookie(3), SIGNALLED,
                                                       address(from, 64), from->rmr_context));
    sink.rmr = NULL;
    EXPECT(IT_ERR_INVALID_RMR, it_post_rdma_read_to_rmr(to->ep, &sink, 1, cookie(3), SIGNALLED,
                                                        address(from, 64), from->rmr_context));
    MUST(it_post_recv(to->ep, &in, 1, cookie(4), SIGNALLED));
    MUST(it_post_send_and_unlink(from->ep, &out, 1, cookie(5), SIGNALLED, context));
    event = check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 4);
    CHECK(event.dto_cmpl.unlinked_mr_handle == (it_handle_t)rmr);
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 5);
    EXPECT(IT_SUCCESS, it_rmr_query(rmr, IT_RMR_PARAM_LINKED, &params));
    CHECK(params.linked == IT_FALSE);
    EXPECT(IT_ERR_INVALID_EP, it_post_send_and_unlink(NULL, &out, 1, cookie(5), SIGNALLED, 1));
    EXPECT(IT_SUCCESS, it_rmr_free(rmr));
}

static void immediates(const struct side *from, const struct side *to)
{
    it_lmr_triplet_t in = piece(to, 0, 100), out = piece(from, 0, 4);
    it_event_t event;
    uint64_t data = 0;
    MUST(it_post_recv(to->ep, &in, 1, cookie(1), SIGNALLED));
    MUST(itw_post_immediate(from->ep, 0x1122334455667788, cookie(2), SIGNALLED));
    event = check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 1);
    EXPECT(IT_SUCCESS, itw_event_immediate(&event, &data));
    CHECK(data == 0x1122334455667788);
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    memcpy(from->memory, "data", 4);
    MUST(it_post_recv(to->ep, &in, 1, cookie(3), SIGNALLED));
    MUST(itw_post_rdma_write_with_immediate(from->ep, &out, 1, cookie(4), SIGNALLED,
                                            address(to, 300), to->rmr_context, 99));
    event = check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 3);
    EXPECT(IT_SUCCESS, itw_event_immediate(&event, &data));
    CHECK(data == 99 && memcmp(to->memory + 300, "data", 4) == 0);
    event = check_completion(from->sends, IT_DTO_RDMA_WRITE_CMPL_EVENT, IT_DTO_SUCCESS, 4);
    EXPECT(IT_ERR_INVALID_EVD_TYPE, itw_event_immediate(&event, &data));
    MUST(it_post_recv(to->ep, &in, 1, cookie(5), SIGNALLED));
    MUST(it_post_send(from->ep, &out, 1, cookie(6), SIGNALLED));
    event = check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 5);
    EXPECT(IT_ERR_QUEUE_EMPTY, itw_event_immediate(&event, &data));
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 6);
    EXPECT(IT_ERR_FAULT, itw_event_immediate(NULL, &data));
    EXPECT(IT_ERR_FAULT, itw_event_immediate(&event, NULL));
    EXPECT(IT_ERR_INVALID_EP, itw_post_immediate(NULL, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_EP,
           itw_post_rdma_write_with_immediate(NULL, &out, 1, cookie(4), SIGNALLED,
                                              address(to, 300), to->rmr_context, 99));
}

static void refused(const struct side *side, const struct side *peer)
{
    it_lmr_triplet_t good = piece(side, 0, 8), bad = good, many[300];
    it_dto_flags_t wrong = (it_dto_flags_t)0x4000;
    char unaligned[sizeof(it_lmr_triplet_t) + 1];
    size_t i;
    for (i = 0; i < 300; i++)
        many[i] = good;
    EXPECT(IT_ERR_INVALID_EP, it_post_send(NULL, &good, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_FAULT, it_post_send(side->ep, NULL, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_DTO_FLAGS, it_post_send(side->ep, &good, 1, cookie(1), wrong));
    EXPECT(IT_ERR_INVALID_NUM_SEGMENTS, it_post_send(side->ep, many, 300, cookie(1), SIGNALLED));
    bad.lmr = NULL;
    EXPECT(IT_ERR_INVALID_LMR, it_post_send(side->ep, &bad, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_LMR, it_post_recv(side->ep, &bad, 1, cookie(1), SIGNALLED));
    bad = piece(side, MEMORY - 4, 8);
    EXPECT(IT_ERR_RANGE, it_post_send(side->ep, &bad, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_RANGE, it_post_rdma_write(side->ep, &bad, 1, cookie(1), SIGNALLED,
                                            address(peer, 0), peer->rmr_context));
    EXPECT(IT_ERR_RANGE, it_post_rdma_read(side->ep, &bad, 1, cookie(1), SIGNALLED,
                                           address(peer, 0), peer->rmr_context));
    bad.length = ~(it_length_t)0;
    EXPECT(IT_ERR_PAYLOAD_SIZE, it_post_send(side->ep, &bad, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_EP, it_post_rdma_write(NULL, &good, 1, cookie(1), SIGNALLED,
                                                 address(peer, 0), peer->rmr_context));
    EXPECT(IT_ERR_INVALID_EP, it_post_rdma_read(NULL, &good, 1, cookie(1), SIGNALLED,
                                                address(peer, 0), peer->rmr_context));
    EXPECT(IT_ERR_INVALID_NUM_SEGMENTS,
           it_post_rdma_read(side->ep, many, 2, cookie(1), SIGNALLED, address(peer, 0),
                             peer->rmr_context));
    EXPECT(IT_ERR_INVALID_HANDLE, it_post_recv(NULL, &good, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_HANDLE, it_post_recv(made_up(), &good, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_HANDLE, it_post_recv(side->pz, &good, 1, cookie(1), SIGNALLED));
    /* An unaligned triplet is accepted. */
    memcpy(unaligned + 1, &good, sizeof good);
    for (i = 0; i < DEPTH; i++)
        EXPECT(IT_SUCCESS, it_post_recv(side->ep, (const it_lmr_triplet_t *)(void *)(unaligned + 1),
                                        1, cookie(50), SIGNALLED));
    while (i < 4 * DEPTH && it_post_recv(side->ep, &good, 1, cookie(50), SIGNALLED) == IT_SUCCESS)
        i++;
    EXPECT(IT_ERR_TOO_MANY_POSTS, it_post_recv(side->ep, &good, 1, cookie(51), SIGNALLED));
    EXPECT(IT_SUCCESS, it_ep_disconnect(side->ep, NULL, 0));
    while (i-- > 0)
        check_completion(side->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_ERR_FLUSHED, 50);
    check_empty(side->receives);
    check_event(side->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    check_event(peer->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
}

/* A write without the right is reported at both sides. */
static void violations(const struct side *from, const struct side *to)
{
    it_lmr_triplet_t out = piece(from, 0, 8);
    it_evd_handle_t affiliated;
    it_event_t event;
    check_reset(from->ep);
    check_reset(to->ep);
    MUST(it_evd_create(to->ia, IT_ASYNC_AFF_EVENT_STREAM, (it_evd_flags_t)0, 8, 1, NULL,
                       &affiliated, NULL));
    sides_connect(from, to);
    MUST(it_post_rdma_read(from->ep, &out, 1, cookie(1), SIGNALLED, address(to, MEMORY),
                           to->rmr_context));
    event = check_event(from->sends, IT_DTO_RDMA_READ_CMPL_EVENT);
    CHECK(event.dto_cmpl.dto_status == IT_DTO_ERR_REMOTE_ACCESS);
    check_event(from->conn, IT_CM_MSG_CONN_BROKEN_EVENT);
    check_event(to->conn, IT_CM_MSG_CONN_BROKEN_EVENT);
    event = check_event(affiliated, IT_ASYNC_AFF_EP_RDMAR_ACCESS_VIOLATION);
    CHECK(event.aff_async.cause.ep == to->ep);
    EXPECT(IT_SUCCESS, it_evd_free(affiliated));
}

int main(void)
{
    struct side active, passive;
    sides_open(&active, &passive);
    messages(&active, &passive);
    payloads(&active, &passive);
    messages(&passive, &active);
    rdma(&active, &passive);
    atomics(&active, &passive);
    unlinking(&active, &passive);
    immediates(&active, &passive);
    refused(&active, &passive);
    violations(&active, &passive);
    side_close(&active);
    side_close(&passive);
    return checked("post");
}
