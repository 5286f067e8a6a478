/*
 * Test with two processes: the client sends a message's address, the server reads it by RDMA Read, reverses it,
 * writes it back by RDMA Write and sends a message. Valid C99, C++98 and C++17, in every binding.
 *
 *   ping serve              prints its port in host order, serves one client
 *   ping connect PORT
 */
#include "check.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 10, LENGTH = 100, HERE = 0, THERE = 4096 };

/* The client's message: big endian. */
struct place {
    uint64_t address, rmr_context;
};

static void receive(const struct side *side, unsigned number)
{
    it_lmr_triplet_t segment = piece(side, THERE, sizeof(struct place));
    MUST(it_post_recv(side->ep, &segment, 1, cookie(number), SIGNALLED));
}

static void send_place(const struct side *side, unsigned number)
{
    it_lmr_triplet_t segment = piece(side, HERE, sizeof(struct place));
    MUST(it_post_send(side->ep, &segment, 1, cookie(number), SIGNALLED));
    check_completion(side->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, number);
}

static void answer(const struct side *side, unsigned number)
{
    it_lmr_triplet_t segment = piece(side, 1024, LENGTH);
    struct place place;
    size_t i;
    it_rdma_addr_t there;
    it_rmr_context_t context;
    check_completion(side->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, number);
    memcpy(&place, side->memory + THERE, sizeof place);
    there = it_ntoh64(place.address);
    context = it_ntoh64(place.rmr_context);
    receive(side, number + 1);
    MUST(it_post_rdma_read(side->ep, &segment, 1, cookie(number), SIGNALLED, there, context));
    check_completion(side->sends, IT_DTO_RDMA_READ_CMPL_EVENT, IT_DTO_SUCCESS, number);
    for (i = 0; i < LENGTH; i++)
        side->memory[1024 + i] ^= 0xff;
    MUST(it_post_rdma_write(side->ep, &segment, 1, cookie(number), SIGNALLED, there, context));
    check_completion(side->sends, IT_DTO_RDMA_WRITE_CMPL_EVENT, IT_DTO_SUCCESS, number);
    send_place(side, number);
}

static void serve(struct side *side)
{
    uint16_t port;
    unsigned round;
    it_listen_handle_t listener = side_listen(side, &port);
    it_event_t request;
    printf("%u\n", (unsigned)ntohs(port));
    fflush(stdout);
    request = check_event(side->request, IT_CM_REQ_CONN_REQUEST_EVENT);
    CHECK(request.conn_req.private_data_present);
    CHECK(memcmp(request.conn_req.private_data, "ping", 4) == 0);
    receive(side, 1);
    MUST(it_ep_accept(side->ep, request.conn_req.cn_est_id, (const unsigned char *)"pong", 4));
    check_event(side->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    for (round = 1; round <= ROUNDS; round++)
        answer(side, round);
    check_event(side->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    check_completion(side->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_ERR_FLUSHED, ROUNDS + 1);
    EXPECT(IT_SUCCESS, it_listen_free(listener));
}

static void ask(const struct side *side, unsigned number)
{
    struct place place;
    size_t i;
    memset(side->memory + 2048, (int)number, LENGTH);
    place.address = it_hton64(address(side, 2048));
    place.rmr_context = it_hton64(side->rmr_context);
    memcpy(side->memory + HERE, &place, sizeof place);
    receive(side, number);
    send_place(side, number);
    check_completion(side->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, number);
    for (i = 0; i < LENGTH; i++)
        CHECK(side->memory[2048 + i] == (number ^ 0xff));
}

static void run_client(struct side *side, uint16_t port)
{
    it_path_t path = check_loopback();
    it_conn_qual_t qualifier = check_port(htons(port));
    it_event_t event;
    unsigned round;
    MUST(it_ep_connect(side->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY,
                       (const unsigned char *)"ping", 4));
    event = check_event(side->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    CHECK(event.conn.private_data_present && memcmp(event.conn.private_data, "pong", 4) == 0);
    CHECK(event.conn.ep == side->ep);
    for (round = 1; round <= ROUNDS; round++)
        ask(side, round);
    MUST(it_ep_disconnect(side->ep, NULL, 0));
    check_event(side->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
}

int main(int argc, char **argv)
{
    struct side side;
    side_open(&side);
    if (argc == 3 && strcmp(argv[1], "connect") == 0)
        run_client(&side, (uint16_t)atoi(argv[2]));
    else
        serve(&side);
    side_close(&side);
    return checked(argc == 3 ? "ping client" : "ping server");
}
