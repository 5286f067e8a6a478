/*
 * Tests of converting sockets to endpoints, and of sockets that are refused.
 */
#include "check.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void tcp_pair(int sockets[2])
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    sockets[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(sockets[0], (struct sockaddr *)&address, sizeof address) == 0);
    sockets[1] = accept(listener, NULL, NULL);
    CHECK(sockets[1] >= 0);
    close(listener);
}

static void read_all(int socket, char *buffer, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t got = read(socket, buffer + done, length - done);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    CHECK(done == length);
}

static void exchange(const struct side *from, const struct side *to)
{
    it_lmr_triplet_t there = piece(to, 100, 10), here = piece(from, 0, 10);
    memcpy(from->memory, "0123456789", 10);
    MUST(it_post_recv(to->ep, &there, 1, cookie(7), SIGNALLED));
    MUST(it_post_send(from->ep, &here, 1, cookie(8), SIGNALLED));
    check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 7);
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 8);
    CHECK(memcmp(to->memory + 100, "0123456789", 10) == 0);
}

static void part(const struct side *left, const struct side *right)
{
    EXPECT(IT_SUCCESS, it_ep_disconnect(left->ep, NULL, 0));
    check_event(left->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    check_event(right->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    check_reset(left->ep);
    check_reset(right->ep);
}

/* The side with the last message is the responder; the other one reads it and initiates. */
static void late_transition(const struct side *left, const struct side *right, it_sc_flags_t flags)
{
    int sockets[2];
    char last[8];
    it_ep_param_t params;
    tcp_pair(sockets);
    MUST(it_socket_convert(sockets[1], right->ep, flags, (const unsigned char *)"go ahead", 8));
    EXPECT(IT_SUCCESS, it_ep_query(right->ep, IT_EP_PARAM_STATE, &params));
    CHECK(params.ep_state.rc == IT_EP_STATE_PASSIVE_WAIT_RDMA_TRANS_REQ ||
          params.ep_state.rc == IT_EP_STATE_CONNECTED);
    read_all(sockets[0], last, sizeof last);
    CHECK(memcmp(last, "go ahead", 8) == 0);
    MUST(it_socket_convert(sockets[0], left->ep, flags, NULL, 0));
    check_event(left->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    check_event(right->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    exchange(left, right);
    exchange(right, left);
    part(left, right);
}

/* Explicit roles, private data, and octets that were read beyond the dialogue. */
static void in_full(const struct side *left, const struct side *right)
{
    int sockets[2];
    unsigned char frame[64];
    ssize_t got;
    it_event_t event;
    tcp_pair(sockets);
    MUST(itw_socket_convert(sockets[0], left->ep, IT_SC_DEFAULT, ITW_ROLE_INITIATOR, NULL, 0,
                            (const unsigned char *)"left", 4, NULL, 0));
    got = read(sockets[1], frame, sizeof frame);
    CHECK(got > 0);
    MUST(itw_socket_convert(sockets[1], right->ep, IT_SC_DEFAULT, ITW_ROLE_RESPONDER, NULL, 0,
                            (const unsigned char *)"right", 5, frame, got > 0 ? (size_t)got : 0));
    event = check_event(left->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    CHECK(event.conn.private_data_present && memcmp(event.conn.private_data, "right", 5) == 0);
    event = check_event(right->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    CHECK(event.conn.private_data_present && memcmp(event.conn.private_data, "left", 4) == 0);
    exchange(left, right);
    part(left, right);
}

static void wrong_sockets(const struct side *side)
{
    int sockets[2], pipes[2], unconnected, datagrams;
    char octet;
    tcp_pair(sockets);
    CHECK(pipe(pipes) == 0);
    unconnected = socket(AF_INET, SOCK_STREAM, 0);
    datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    EXPECT(IT_ERR_MISMATCH_FD, it_socket_convert(-1, side->ep, IT_SC_DEFAULT, NULL, 0));
    EXPECT(IT_ERR_MISMATCH_FD, it_socket_convert(54321, side->ep, IT_SC_DEFAULT, NULL, 0));
    EXPECT(IT_ERR_MISMATCH_FD, it_socket_convert(pipes[0], side->ep, IT_SC_DEFAULT, NULL, 0));
    EXPECT(IT_ERR_MISMATCH_FD, it_socket_convert(unconnected, side->ep, IT_SC_DEFAULT, NULL, 0));
    EXPECT(IT_ERR_MISMATCH_FD, it_socket_convert(datagrams, side->ep, IT_SC_DEFAULT, NULL, 0));
    CHECK(listen(unconnected, 1) == 0);
    EXPECT(IT_ERR_MISMATCH_FD, it_socket_convert(unconnected, side->ep, IT_SC_DEFAULT, NULL, 0));
    EXPECT(IT_ERR_INVALID_EP, it_socket_convert(sockets[0], NULL, IT_SC_DEFAULT, NULL, 0));
    EXPECT(IT_ERR_INVALID_FLAGS,
           it_socket_convert(sockets[0], side->ep, (it_sc_flags_t)0x10, NULL, 0));
    EXPECT(IT_ERR_FAULT, it_socket_convert(sockets[0], side->ep, IT_SC_DEFAULT, NULL, 9));
    EXPECT(IT_ERR_INVALID_FLAGS,
           itw_socket_convert(sockets[0], side->ep, IT_SC_DEFAULT, (itw_role_t)7, NULL, 0, NULL, 0,
                              NULL, 0));
    /* The refused sockets are unchanged. */
    CHECK(write(sockets[0], "x", 1) == 1 && read(sockets[1], &octet, 1) == 1 && octet == 'x');
    CHECK(write(pipes[1], "y", 1) == 1 && read(pipes[0], &octet, 1) == 1 && octet == 'y');
    close(sockets[0]);
    close(sockets[1]);
    close(pipes[0]);
    close(pipes[1]);
    close(unconnected);
    close(datagrams);
}

int main(void)
{
    struct side left, right;
    side_open(&left);
    side_open(&right);
    wrong_sockets(&left);
    late_transition(&left, &right, IT_SC_DEFAULT);
    late_transition(&left, &right, IT_SC_NO_REQ_REP);
    in_full(&left, &right);
    side_close(&left);
    side_close(&right);
    return checked("convert");
}
