/*
 * Test with a device of rdma-core, or its test double: the calls do what it_ia_query() says of the device, and
 * nothing else differs for a program.
 *
 * Arguments: name of the adapter; "ib" or "iwarp"; private data that connect, accept and reject take.
 */
#include "check.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static it_transport_type_t transport;
static size_t connect_most, accept_most, reject_most;

static unsigned char octets[512];

/* The transport of an adapter in the list of interfaces. */
static it_transport_type_t listed(const char *name)
{
    it_interface_t list[32];
    size_t room = 32, n;
    it_interface_list(list, &room, NULL);
    for (n = 0; n < room; n++)
        if (strcmp(list[n].name, name) == 0)
            return list[n].transport_type;
    return (it_transport_type_t)0;
}

static void capabilities(const struct side *side)
{
    it_ia_info_t *info;
    MUST(it_ia_query(side->ia, &info));
    CHECK(info->transport_type == transport && listed(info->ia_name) == transport);
    CHECK(info->connect_private_data_len == connect_most);
    CHECK(info->accept_private_data_len == accept_most);
    CHECK(info->reject_private_data_len == reject_most);
    if (transport == IT_IB_TRANSPORT)
        CHECK(info->supported_service_types == (IT_RC_SERVICE | IT_UD_SERVICE));
    else
        CHECK(info->supported_service_types == IT_RC_SERVICE);
    CHECK((info->spigot_info[0].max_ud_send_len != 0) == (transport == IT_IB_TRANSPORT));
    CHECK((info->ud_req_private_data_len != 0) == (transport == IT_IB_TRANSPORT));
    CHECK((info->ud_rep_private_data_len != 0) == (transport == IT_IB_TRANSPORT));
    CHECK(info->rmr_types_supported == (IT_RMR_TYPE_NARROW | IT_RMR_TYPE_WIDE));
    CHECK(info->srq_support == IT_TRUE && info->atomic_support == IT_TRUE);
    CHECK(info->post_send_unlink_remote_support == IT_TRUE);
    CHECK(info->narrow_rmr_unlink_support == IT_TRUE);
    CHECK(info->wide_rmr_unlink_support == IT_TRUE);
    CHECK(info->rdma_read_local_extensions == IT_FALSE);
    CHECK(info->soft_hi_watermark_support == IT_FALSE);
    CHECK(info->hard_hi_watermark_support == IT_FALSE);
    CHECK(info->socket_conversion_support == IT_FALSE);
    CHECK(info->addr_mode_relative_support == IT_FALSE);
    CHECK(info->lmr_link_support == IT_FALSE);
    CHECK(info->three_way_handshake_support == IT_FALSE);
    it_ia_info_free(info);
}

/* Calls that the adapter does not support are refused as such. */
static void refusals(const struct side *side)
{
    it_ep_attributes_t attributes = check_attributes();
    it_ep_handle_t ep;
    it_lmr_handle_t lmr;
    it_rmr_triplet_t window;
    it_lmr_triplet_t sink = piece(side, 0, 8);
    it_dto_flags_t unlink = (it_dto_flags_t)(SIGNALLED | IT_UNLINK_LOCAL_SINK);
    attributes.srv.rc.soft_hi_watermark = 2;
    EXPECT(IT_ERR_SOFT_HI_WATERMARK,
           it_ep_rc_create(side->pz, side->sends, side->receives, side->conn, IT_EP_NO_FLAG,
                           &attributes, &ep));
    EXPECT(IT_ERR_INVALID_ADDR_MODE,
           it_lmr_create(side->pz, side->memory, NULL, 64, IT_ADDR_MODE_RELATIVE, IT_PRIV_ALL,
                         IT_LMR_FLAG_NONE, 0, &lmr, NULL));
    EXPECT(IT_ERR_OP_NOT_SUPPORTED,
           it_post_rdma_read(side->ep, &sink, 1, cookie(1), unlink, 0, 1));
    memset(&window, 0, sizeof window);
    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_post_rdma_read_to_rmr(side->ep, &window, 1, cookie(1),
                                                             SIGNALLED, 0, 1));
    EXPECT(IT_ERR_OP_NOT_SUPPORTED,
           it_lmr_link(side->lmr, side->memory, NULL, 64, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL,
                       side->ep, cookie(1), SIGNALLED, NULL));
    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_socket_convert(0, side->ep, IT_SC_DEFAULT, NULL, 0));
}

/* iWARP's devices have no datagrams. */
static void no_datagrams(const struct side *side)
{
    it_ep_attributes_t attributes;
    it_path_t path = check_loopback();
    it_addr_handle_t somewhere;
    it_ep_handle_t ep;
    memset(&attributes, 0, sizeof attributes);
    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_ep_ud_create(side->pz, side->sends, side->receives,
                                                    &attributes, 0, &ep));
    EXPECT(IT_ERR_OP_NOT_SUPPORTED,
           it_address_handle_create(side->pz, &path, (it_ah_flags_t)0, &somewhere));
}

/* Private data up to the reported limit, both ways, and not one octet more. */
static void private_data(const struct side *active, const struct side *passive)
{
    uint16_t port;
    it_listen_handle_t listener = side_listen(passive, &port);
    it_conn_qual_t qualifier = check_port(port);
    it_path_t path = check_loopback();
    it_event_t event;
    it_cn_est_identifier_t request;
    it_cn_est_flags_t flags = IT_CONNECT_FLAG_TWO_WAY;
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH,
           it_ep_connect(active->ep, &path, NULL, &qualifier, flags, octets, connect_most + 1));
    MUST(it_ep_connect(active->ep, &path, NULL, &qualifier, flags, octets, connect_most));
    event = check_event(passive->request, IT_CM_REQ_CONN_REQUEST_EVENT);
    CHECK(memcmp(event.conn_req.private_data, octets, connect_most) == 0);
    request = event.conn_req.cn_est_id;
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH, it_reject(request, octets, reject_most + 1));
    MUST(it_reject(request, octets, reject_most));
    event = check_event(active->conn, IT_CM_MSG_CONN_PEER_REJECT_EVENT);
    CHECK(memcmp(event.conn.private_data, octets, reject_most) == 0);
    check_reset(active->ep);
    MUST(it_ep_connect(active->ep, &path, NULL, &qualifier, flags, octets, 0));
    event = check_event(passive->request, IT_CM_REQ_CONN_REQUEST_EVENT);
    request = event.conn_req.cn_est_id;
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH,
           it_ep_accept(passive->ep, request, octets, accept_most + 1));
    MUST(it_ep_accept(passive->ep, request, octets, accept_most));
    event = check_event(active->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    CHECK(memcmp(event.conn.private_data, octets, accept_most) == 0);
    check_event(passive->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    MUST(it_listen_free(listener));
}

static void message(const struct side *from, const struct side *to, unsigned number)
{
    it_lmr_triplet_t source = piece(from, 0, 64), sink = piece(to, 1024, 64);
    memset(from->memory, (int)number, 64);
    MUST(it_post_recv(to->ep, &sink, 1, cookie(number), SIGNALLED));
    MUST(it_post_send(from->ep, &source, 1, cookie(number), SIGNALLED));
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, number);
    check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, number);
    CHECK(to->memory[1024] == number && to->memory[1087] == number);
}

static void one_sided(const struct side *active, const struct side *passive)
{
    it_lmr_triplet_t here = piece(active, 0, 256);
    memset(active->memory, 0x5a, 256);
    MUST(it_post_rdma_write(active->ep, &here, 1, cookie(1), SIGNALLED, address(passive, 2048),
                            passive->rmr_context));
    check_completion(active->sends, IT_DTO_RDMA_WRITE_CMPL_EVENT, IT_DTO_SUCCESS, 1);
    memset(active->memory, 0, 256);
    MUST(it_post_rdma_read(active->ep, &here, 1, cookie(2), SIGNALLED, address(passive, 2048),
                           passive->rmr_context));
    check_completion(active->sends, IT_DTO_RDMA_READ_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    CHECK(active->memory[0] == 0x5a && active->memory[255] == 0x5a);
    message(passive, active, 3);
}

/* The peer can use the context that a link returns, whether the library or the device chose it. */
static void window(const struct side *active, const struct side *passive, it_rmr_type_t type)
{
    it_rmr_handle_t rmr;
    it_rmr_context_t context = 0;
    it_rmr_param_t params;
    it_lmr_triplet_t source = piece(active, 0, 64);
    MUST(it_rmr_create(passive->pz, type, &rmr));
    MUST(it_rmr_link(rmr, passive->lmr, passive->memory + 512, 64, IT_ADDR_MODE_ABSOLUTE,
                     IT_PRIV_REMOTE, passive->ep, cookie(4), SIGNALLED, &context));
    check_completion(passive->sends, IT_RMR_LINK_CMPL_EVENT, IT_DTO_SUCCESS, 4);
    EXPECT(IT_SUCCESS, it_rmr_query(rmr, IT_RMR_PARAM_ALL, &params));
    CHECK(params.linked == IT_TRUE && params.rmr_context == context && context != 0);
    memset(active->memory, 0x42 + (int)type, 64);
    MUST(it_post_rdma_write(active->ep, &source, 1, cookie(5), SIGNALLED, address(passive, 512),
                            context));
    check_completion(active->sends, IT_DTO_RDMA_WRITE_CMPL_EVENT, IT_DTO_SUCCESS, 5);
    CHECK(passive->memory[512] == 0x42 + (int)type && passive->memory[575] == 0x42 + (int)type);
    MUST(it_rmr_unlink(rmr, passive->ep, cookie(6), SIGNALLED));
    check_completion(passive->sends, IT_RMR_LINK_CMPL_EVENT, IT_DTO_SUCCESS, 6);
    EXPECT(IT_SUCCESS, it_rmr_query(rmr, IT_RMR_PARAM_ALL, &params));
    CHECK(params.linked == IT_FALSE);
    EXPECT(IT_SUCCESS, it_rmr_free(rmr));
}

static void calls(const struct side *active, const struct side *passive)
{
    refusals(active);
    private_data(active, passive);
    message(active, passive, 1);
    one_sided(active, passive);
    window(active, passive, IT_RMR_TYPE_NARROW);
    window(active, passive, IT_RMR_TYPE_WIDE);
    window(active, passive, IT_RMR_TYPE_DEFAULT);
    EXPECT(IT_SUCCESS, it_ep_disconnect(passive->ep, NULL, 0));
    check_event(active->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
}

int main(int argc, char **argv)
{
    struct side active, passive;
    size_t n;
    if (argc != 6)
        return 2;
    transport = strcmp(argv[2], "iwarp") ? IT_IB_TRANSPORT : IT_IWARP_TCP_TRANSPORT;
    connect_most = (size_t)atoi(argv[3]);
    accept_most = (size_t)atoi(argv[4]);
    reject_most = (size_t)atoi(argv[5]);
    for (n = 0; n < sizeof octets; n++)
        octets[n] = (unsigned char)(n ^ 0xa5);
    side_open_on(&active, argv[1]);
    side_open_on(&passive, argv[1]);
    capabilities(&active);
    /* The test double has 127.0.0.1, to which all connections here go, on InfiniBand. */
    if (transport == IT_IB_TRANSPORT)
        calls(&active, &passive);
    else
        no_datagrams(&active);
    side_close(&active);
    side_close(&passive);
    return checked("hardware");
}
