/*
 * Tests of unreliable datagrams over a device that has them, or its test double: an endpoint is found by its
 * service, datagrams go both ways, and every refusal has its status.
 *
 * Argument: name of the adapter.
 */
#include "check.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum { GRH = 40, TEXT = 64 };

/* The longest datagram, and the longest private data of requests and replies. */
static size_t longest, question_most, answer_most;
static unsigned char octets[512];

static it_ep_attributes_t attributes(void)
{
    it_ep_attributes_t wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.max_request_dtos = wanted.max_recv_dtos = DEPTH;
    wanted.max_send_segments = wanted.max_recv_segments = 2;
    return wanted;
}

static it_ep_handle_t endpoint(const struct side *side)
{
    it_ep_attributes_t wanted = attributes();
    it_ep_handle_t ep;
    MUST(it_ep_ud_create(side->pz, side->sends, side->receives, &wanted, side_spigot(side->ia),
                         &ep));
    return ep;
}

static it_remote_ep_info_t info_of(it_ep_handle_t ep)
{
    it_ep_param_t params;
    MUST(it_ep_query(ep, IT_EP_PARAM_ALL, &params));
    return params.attr.srv.ud.ep_info;
}

static it_dg_remote_ep_addr_t to(it_addr_handle_t way, it_remote_ep_info_t info)
{
    it_dg_remote_ep_addr_t remote;
    memset(&remote, 0, sizeof remote);
    remote.type = IT_DG_TYPE_IB_UD;
    remote.addr.ud.addr = way;
    remote.addr.ud.ep_info = info;
    return remote;
}

static void limits(const struct side *side)
{
    it_ia_info_t *info;
    MUST(it_ia_query(side->ia, &info));
    CHECK(info->supported_service_types == (IT_RC_SERVICE | IT_UD_SERVICE));
    longest = info->spigot_info[side_spigot(side->ia)].max_ud_send_len;
    question_most = info->ud_req_private_data_len;
    answer_most = info->ud_rep_private_data_len;
    CHECK(longest >= 256 && longest <= 4096);
    CHECK(question_most > 0 && question_most <= IT_MAX_PRIV_DATA);
    CHECK(answer_most > 0 && answer_most <= IT_MAX_PRIV_DATA);
    it_ia_info_free(info);
}

static void endpoints(const struct side *side)
{
    it_ep_attributes_t wanted = attributes();
    it_ep_param_t params;
    it_handle_type_enum_t kind;
    it_ep_handle_t ep;
    size_t spigot = side_spigot(side->ia);
    EXPECT(IT_ERR_INVALID_PZ,
           it_ep_ud_create(NULL, side->sends, side->receives, &wanted, spigot, &ep));
    EXPECT(IT_ERR_INVALID_REQ_EVD,
           it_ep_ud_create(side->pz, NULL, side->receives, &wanted, spigot, &ep));
    EXPECT(IT_ERR_INVALID_RECV_EVD,
           it_ep_ud_create(side->pz, side->sends, NULL, &wanted, spigot, &ep));
    EXPECT(IT_ERR_INVALID_EVD_TYPE,
           it_ep_ud_create(side->pz, side->sends, side->conn, &wanted, spigot, &ep));
    EXPECT(IT_ERR_INVALID_SPIGOT,
           it_ep_ud_create(side->pz, side->sends, side->receives, &wanted, 4711, &ep));
    EXPECT(IT_ERR_FAULT,
           it_ep_ud_create(side->pz, side->sends, side->receives, NULL, spigot, &ep));
    EXPECT(IT_ERR_FAULT,
           it_ep_ud_create(side->pz, side->sends, side->receives, &wanted, spigot, NULL));
    wanted.max_dto_payload_size = longest + 1;
    EXPECT(IT_ERR_PAYLOAD_SIZE,
           it_ep_ud_create(side->pz, side->sends, side->receives, &wanted, spigot, &ep));
    wanted.max_dto_payload_size = longest;
    wanted.max_request_dtos = (size_t)-1;
    EXPECT(IT_ERR_RESOURCE_REQ_DTO,
           it_ep_ud_create(side->pz, side->sends, side->receives, &wanted, spigot, &ep));
    wanted.max_request_dtos = DEPTH;
    wanted.srv.ud.ep_info.ud_ep_key = 0x4711;
    MUST(it_ep_ud_create(side->pz, side->sends, side->receives, &wanted, spigot, &ep));
    EXPECT(IT_SUCCESS, it_get_handle_type(ep, &kind));
    CHECK(kind == IT_HANDLE_TYPE_EP);
    EXPECT(IT_ERR_INVALID_MASK, it_ep_query(ep, (it_ep_param_mask_t)0x40000000, &params));
    EXPECT(IT_SUCCESS, it_ep_query(ep, IT_EP_PARAM_ALL, &params));
    CHECK(params.service_type == IT_UD_SERVICE && params.spigot_id == spigot);
    CHECK(params.ep_state.ud == IT_EP_STATE_UD_OPERATIONAL);
    CHECK(params.ia == side->ia && params.pz == side->pz && params.connect_sevd == NULL);
    CHECK(params.request_sevd == side->sends && params.recv_sevd == side->receives);
    CHECK(params.attr.max_dto_payload_size == longest);
    CHECK(params.attr.srv.ud.ep_info.ud_ep_key == 0x4711);
    params.attr.max_dto_payload_size = 100;
    EXPECT(IT_SUCCESS, it_ep_modify(ep, IT_EP_PARAM_MAX_PAYLOAD, &params.attr));
    EXPECT(IT_SUCCESS, it_ep_modify(ep, IT_EP_PARAM_EP_KEY, &params.attr));
    params.attr.srv.ud.ep_info.ud_ep_key = 1;
    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_ep_modify(ep, IT_EP_PARAM_EP_KEY, &params.attr));
    EXPECT(IT_ERR_INVALID_MASK, it_ep_modify(ep, IT_EP_PARAM_MAX_IRD, &params.attr));
    EXPECT(IT_SUCCESS, it_ep_query(ep, IT_EP_PARAM_MAX_PAYLOAD, &params));
    CHECK(params.attr.max_dto_payload_size == 100);
    EXPECT(IT_SUCCESS, it_ep_free(ep));
    EXPECT(IT_ERR_INVALID_EP, it_ep_free(ep));
}

/* Each type of endpoint has its own calls. */
static void types(const struct side *side, it_ep_handle_t ud)
{
    it_lmr_triplet_t part = piece(side, 0, 8);
    it_dg_remote_ep_addr_t nowhere = to(NULL, info_of(ud));
    it_path_t path = check_loopback();
    it_conn_qual_t qualifier = check_port(htons(7));
    EXPECT(IT_ERR_INVALID_EP_TYPE, it_post_send(ud, &part, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_EP_TYPE, it_ep_connect(ud, &path, NULL, &qualifier,
                                                 IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    EXPECT(IT_ERR_INVALID_EP_TYPE, it_ep_disconnect(ud, NULL, 0));
    EXPECT(IT_ERR_INVALID_EP_TYPE,
           it_post_sendto(side->ep, &part, 1, cookie(1), SIGNALLED, &nowhere));
    EXPECT(IT_ERR_INVALID_EP_TYPE, it_post_recvfrom(side->ep, &part, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_AH, it_post_sendto(ud, &part, 1, cookie(1), SIGNALLED, &nowhere));
    EXPECT(IT_ERR_FAULT, it_post_sendto(ud, &part, 1, cookie(1), SIGNALLED, NULL));
    EXPECT(IT_ERR_INVALID_DTO_FLAGS,
           it_post_recvfrom(ud, &part, 1, cookie(1), IT_UNLINK_FENCE_FLAG));
    EXPECT(IT_ERR_INVALID_EP, it_post_recvfrom((it_ep_handle_t)made_up(), &part, 1, cookie(1),
                                               SIGNALLED));
}

static it_ud_svc_req_handle_t service(const struct side *side, uint16_t port, size_t length)
{
    it_conn_qual_t qualifier = check_port(port);
    it_path_t path = check_loopback();
    it_ud_svc_req_handle_t handle;
    MUST(it_ud_service_request_handle_create(&qualifier, side->conn, &path, octets, length,
                                             &handle));
    return handle;
}

static void descriptions(const struct side *side)
{
    it_conn_qual_t qualifier = check_port(htons(7)), none = check_port(0);
    it_path_t path = check_loopback(), nowhere;
    it_ud_svc_req_handle_t handle;
    it_ud_svc_req_param_t params;
    it_handle_type_enum_t kind;
    memset(&nowhere, 0, sizeof nowhere);
    EXPECT(IT_ERR_INVALID_EVD,
           it_ud_service_request_handle_create(&qualifier, NULL, &path, NULL, 0, &handle));
    EXPECT(IT_ERR_INVALID_EVD_TYPE,
           it_ud_service_request_handle_create(&qualifier, side->sends, &path, NULL, 0, &handle));
    EXPECT(IT_ERR_INVALID_CONN_QUAL,
           it_ud_service_request_handle_create(&none, side->conn, &path, NULL, 0, &handle));
    EXPECT(IT_ERR_INVALID_SOURCE_PATH,
           it_ud_service_request_handle_create(&qualifier, side->conn, &nowhere, NULL, 0, &handle));
    EXPECT(IT_ERR_FAULT,
           it_ud_service_request_handle_create(&qualifier, side->conn, NULL, NULL, 0, &handle));
    if (question_most < IT_MAX_PRIV_DATA)
        EXPECT(IT_ERR_INVALID_PDATA_LENGTH,
               it_ud_service_request_handle_create(&qualifier, side->conn, &path, octets,
                                                   question_most + 1, &handle));
    handle = service(side, htons(7), 5);
    EXPECT(IT_SUCCESS, it_get_handle_type((it_handle_t)handle, &kind));
    CHECK(kind == IT_HANDLE_TYPE_UD_SVC_REQ);
    EXPECT(IT_ERR_INVALID_MASK, it_ud_service_request_handle_query(
                                    handle, (it_ud_svc_req_param_mask_t)0x1000, &params));
    EXPECT(IT_SUCCESS, it_ud_service_request_handle_query(handle, IT_UD_PARAM_ALL, &params));
    CHECK(params.ia == side->ia && params.reply_evd == side->conn);
    CHECK(params.conn_qual.conn_qual.port == htons(7));
    CHECK(params.private_data_length == 5 && memcmp(params.private_data, octets, 5) == 0);
    EXPECT(IT_ERR_EVD_BUSY, it_evd_free(side->conn));
    EXPECT(IT_SUCCESS, it_ud_service_request_handle_free(handle));
    EXPECT(IT_ERR_INVALID_UD_SVC, it_ud_service_request_handle_free(handle));
    EXPECT(IT_ERR_INVALID_UD_SVC, it_ud_service_request(handle));
}

static it_ud_svc_request_event_t asked(const struct side *side)
{
    return check_event(side->request, IT_CM_REQ_UD_SERVICE_REQUEST_EVENT).ud_svc_request;
}

static it_ud_svc_reply_event_t answered(const struct side *side)
{
    return check_event(side->conn, IT_CM_MSG_UD_SERVICE_REPLY_EVENT).ud_svc_reply;
}

/* Finds the endpoint `there` of the passive side; returns the reply. */
static it_ud_svc_reply_event_t resolve(const struct side *active, const struct side *passive,
                                       uint16_t port, it_ep_handle_t there)
{
    it_ud_svc_req_handle_t question = service(active, port, question_most);
    it_ud_svc_request_event_t request;
    it_ud_svc_reply_event_t answer;
    it_remote_ep_info_t info = info_of(there);
    MUST(it_ud_service_request(question));
    request = asked(passive);
    CHECK(memcmp(request.private_data, octets, question_most) == 0);
    CHECK(request.conn_qual.conn_qual.port == port);
    CHECK(request.spigot_id == side_spigot(passive->ia));
    CHECK(request.source_addr.addr_type == IT_IPV4);
    EXPECT(IT_ERR_INVALID_UD_STATUS,
           it_ud_service_reply(request.ud_svc_req_id, (it_ud_svc_req_status_t)77, info, NULL, 0));
    if (answer_most < IT_MAX_PRIV_DATA)
        EXPECT(IT_ERR_INVALID_PDATA_LENGTH,
               it_ud_service_reply(request.ud_svc_req_id, IT_UD_SVC_EP_INFO_VALID, info, octets,
                                   answer_most + 1));
    EXPECT(IT_ERR_INVALID_CN_EST_ID, it_reject(request.ud_svc_req_id, NULL, 0));
    EXPECT(IT_ERR_INVALID_CN_EST_ID, it_ep_accept(passive->ep, request.ud_svc_req_id, NULL, 0));
    MUST(it_ud_service_reply(request.ud_svc_req_id, IT_UD_SVC_EP_INFO_VALID, info, octets,
                             answer_most));
    EXPECT(IT_ERR_INVALID_UD_SVC_REQ_ID,
           it_ud_service_reply(request.ud_svc_req_id, IT_UD_SVC_EP_INFO_VALID, info, NULL, 0));
    answer = answered(active);
    CHECK(answer.ud_svc == question && answer.status == IT_UD_SVC_EP_INFO_VALID);
    CHECK(answer.ep_info.ud_ep_id == info.ud_ep_id && answer.ep_info.ud_ep_key == info.ud_ep_key);
    CHECK(memcmp(answer.private_data, octets, answer_most) == 0);
    MUST(it_ud_service_request_handle_free(question));
    return answer;
}

static void refusals(const struct side *active, const struct side *passive, uint16_t port)
{
    it_ud_svc_req_handle_t question = service(active, port, 0);
    it_remote_ep_info_t none = {0, 0};
    int status;
    for (status = IT_UD_SVC_ID_NOT_SUPPORTED; status <= IT_UD_REQ_REDIRECTED; status++) {
        it_ud_svc_reply_event_t answer;
        MUST(it_ud_service_request(question));
        MUST(it_ud_service_reply(asked(passive).ud_svc_req_id, (it_ud_svc_req_status_t)status,
                                 none, octets, 3));
        answer = answered(active);
        CHECK(answer.status == (it_ud_svc_req_status_t)status && answer.ud_svc == question);
        CHECK(memcmp(answer.private_data, octets, 3) == 0);
    }
    MUST(it_ud_service_request_handle_free(question));
}

/* A listener hands a request to another one; a cancelled request has no reply. */
static void handed_over(const struct side *active, const struct side *passive, uint16_t port)
{
    uint16_t second;
    it_listen_handle_t other = side_listen(passive, &second);
    it_conn_qual_t qualifier = check_port(second);
    it_ud_svc_req_handle_t question = service(active, port, 0);
    it_remote_ep_info_t none = {0, 0};
    it_ud_svc_request_event_t request;
    MUST(it_ud_service_request(question));
    MUST(it_handoff(&qualifier, 0, asked(passive).ud_svc_req_id));
    request = asked(passive);
    CHECK(request.conn_qual.conn_qual.port == second);
    MUST(it_ud_service_reply(request.ud_svc_req_id, IT_UD_NO_EP_AVAILABLE, none, NULL, 0));
    CHECK(answered(active).status == IT_UD_NO_EP_AVAILABLE);
    MUST(it_ud_service_request(question));
    request = asked(passive);
    MUST(it_ud_service_request_handle_free(question));
    /* A late reply is dropped. */
    (void)it_ud_service_reply(request.ud_svc_req_id, IT_UD_NO_EP_AVAILABLE, none, NULL, 0);
    check_empty(active->conn);
    MUST(it_listen_free(other));
}

static void address_handles(const struct side *side, const it_path_t *way)
{
    it_path_t ip = check_loopback(), elsewhere = *way;
    it_addr_param_t params;
    it_addr_handle_t handle;
    it_handle_type_enum_t kind;
    it_pz_handle_t zone;
    EXPECT(IT_ERR_INVALID_ADDRESS,
           it_address_handle_create(side->pz, &ip, (it_ah_flags_t)0, &handle));
    elsewhere.spigot_id = 4711;
    EXPECT(IT_ERR_INVALID_SPIGOT,
           it_address_handle_create(side->pz, &elsewhere, (it_ah_flags_t)0, &handle));
    EXPECT(IT_ERR_INVALID_FLAGS,
           it_address_handle_create(side->pz, way, (it_ah_flags_t)0x80, &handle));
    MUST(it_pz_create(side->ia, &zone));
    MUST(it_address_handle_create(zone, way, IT_AH_PATH_COMPLETE, &handle));
    EXPECT(IT_SUCCESS, it_get_handle_type((it_handle_t)handle, &kind));
    CHECK(kind == IT_HANDLE_TYPE_ADDR);
    EXPECT(IT_ERR_INVALID_MASK,
           it_address_handle_query(handle, (it_addr_param_mask_t)0x10, &params));
    EXPECT(IT_SUCCESS, it_address_handle_query(handle, IT_ADDR_PARAM_ALL, &params));
    CHECK(params.ia == side->ia && params.pz == zone);
    CHECK(memcmp(&params.path.u.ib.remote_port_gid, &way->u.ib.remote_port_gid, 16) == 0);
    params.path.u.ib.traffic_class = 9;
    EXPECT(IT_ERR_INVALID_MASK, it_address_handle_modify(handle, IT_ADDR_PARAM_PZ, &params));
    EXPECT(IT_SUCCESS, it_address_handle_modify(handle, IT_ADDR_PARAM_PATH, &params));
    memset(&params, 0, sizeof params);
    EXPECT(IT_SUCCESS, it_address_handle_query(handle, IT_ADDR_PARAM_PATH, &params));
    CHECK(params.path.u.ib.traffic_class == 9);
    EXPECT(IT_ERR_PZ_BUSY, it_pz_free(zone));
    EXPECT(IT_SUCCESS, it_address_handle_free(handle));
    EXPECT(IT_ERR_INVALID_AH, it_address_handle_free(handle));
    EXPECT(IT_ERR_INVALID_AH, it_address_handle_modify(handle, IT_ADDR_PARAM_PATH, &params));
    EXPECT(IT_SUCCESS, it_pz_free(zone));
}

/* Sends, and checks the datagram that arrives; its completion has the source. */
static it_all_dto_cmpl_event_t datagram(const struct side *from, it_ep_handle_t source,
                                        const struct side *at, it_ep_handle_t sink,
                                        it_dg_remote_ep_addr_t *remote, unsigned number)
{
    it_lmr_triplet_t text = piece(from, 0, TEXT), room = piece(at, 1024, GRH + TEXT);
    it_event_t event;
    memset(from->memory, (int)number, TEXT);
    memset(at->memory + 1024, 0, GRH + TEXT);
    MUST(it_post_recvfrom(sink, &room, 1, cookie(number), SIGNALLED));
    MUST(it_post_sendto(source, &text, 1, cookie(number + 100), SIGNALLED, remote));
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, number + 100);
    event = check_completion(at->receives, IT_DTO_UD_RECV_CMPL_EVENT, IT_DTO_SUCCESS, number);
    CHECK(event.all_dto_cmpl.ep == sink);
    CHECK(event.all_dto_cmpl.transferred_length == GRH + TEXT);
    CHECK(event.all_dto_cmpl.ud_ep_id == info_of(source).ud_ep_id);
    CHECK(at->memory[1024 + GRH] == number && at->memory[1024 + GRH + TEXT - 1] == number);
    return event.all_dto_cmpl;
}

static void both_ways(const struct side *active, it_ep_handle_t here, const struct side *passive,
                      it_ep_handle_t there, const it_ud_svc_reply_event_t *answer)
{
    it_addr_handle_t way, back, foreign;
    it_dg_remote_ep_addr_t remote;
    it_all_dto_cmpl_event_t arrived;
    it_remote_ep_info_t asker;
    it_lmr_triplet_t part;
    it_pz_handle_t zone;
    unsigned n;
    MUST(it_address_handle_create(active->pz, &answer->dst_path, IT_AH_PATH_COMPLETE, &way));
    remote = to(way, answer->ep_info);
    arrived = datagram(active, here, passive, there, &remote, 1);
    /* The reply has no key: programs agree on it. */
    asker.ud_ep_id = arrived.ud_ep_id;
    asker.ud_ep_key = info_of(here).ud_ep_key;
    MUST(it_address_handle_create(passive->pz, &arrived.src_path, IT_AH_PATH_COMPLETE, &back));
    remote = to(back, asker);
    arrived = datagram(passive, there, active, here, &remote, 2);
    CHECK(arrived.ud_ep_id == info_of(there).ud_ep_id);
    /* Unsignalled sends free their slots. */
    remote = to(way, answer->ep_info);
    part = piece(active, 0, 8);
    for (n = 0; n < 10 * DEPTH; n++) {
        it_status_t status = it_post_sendto(here, &part, 1, cookie(n), (it_dto_flags_t)0, &remote);
        if (status == IT_ERR_TOO_MANY_POSTS)
            break;
        CHECK(status == IT_SUCCESS);
        if (n % (DEPTH - 1) == DEPTH - 2) {
            MUST(it_post_sendto(here, &part, 1, cookie(n), SIGNALLED, &remote));
            check_completion(active->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, n);
        }
    }
    CHECK(n == 10 * DEPTH);
    /* A segment with a wrong length, path or memory. */
    part = piece(active, 0, longest + 1);
    EXPECT(IT_ERR_PAYLOAD_SIZE, it_post_sendto(here, &part, 1, cookie(3), SIGNALLED, &remote));
    part = piece(active, 0, 8);
    remote.type = (it_dg_type_t)7;
    EXPECT(IT_ERR_INVALID_AH, it_post_sendto(here, &part, 1, cookie(3), SIGNALLED, &remote));
    MUST(it_pz_create(active->ia, &zone));
    MUST(it_address_handle_create(zone, &answer->dst_path, IT_AH_PATH_COMPLETE, &foreign));
    remote = to(foreign, answer->ep_info);
    EXPECT(IT_ERR_INVALID_AH, it_post_sendto(here, &part, 1, cookie(3), SIGNALLED, &remote));
    MUST(it_address_handle_free(foreign));
    MUST(it_pz_free(zone));
    remote = to(way, answer->ep_info);
    MUST(it_address_handle_free(way));
    EXPECT(IT_ERR_INVALID_AH, it_post_sendto(here, &part, 1, cookie(3), SIGNALLED, &remote));
    MUST(it_address_handle_free(back));
    check_empty(active->sends);
    check_empty(passive->receives);
}

int main(int argc, char **argv)
{
    struct side active, passive;
    it_ep_handle_t here, there, left;
    it_listen_handle_t listener;
    it_ud_svc_reply_event_t answer;
    uint16_t port;
    size_t n;
    if (argc != 2)
        return 2;
    for (n = 0; n < sizeof octets; n++)
        octets[n] = (unsigned char)(n ^ 0x5a);
    side_open_on(&active, argv[1]);
    side_open_on(&passive, argv[1]);
    limits(&active);
    endpoints(&active);
    here = endpoint(&active);
    there = endpoint(&passive);
    types(&active, here);
    descriptions(&active);
    listener = side_listen(&passive, &port);
    answer = resolve(&active, &passive, port, there);
    refusals(&active, &passive, port);
    handed_over(&active, &passive, port);
    address_handles(&active, &answer.dst_path);
    both_ways(&active, here, &passive, there, &answer);
    MUST(it_listen_free(listener));
    EXPECT(IT_SUCCESS, it_ep_free(here));
    EXPECT(IT_SUCCESS, it_ep_free(there));
    side_close(&active);
    /* The adapter frees the remaining objects. */
    left = endpoint(&passive);
    (void)service(&passive, port, 0);
    EXPECT(IT_SUCCESS, it_ia_free(passive.ia));
    EXPECT(IT_ERR_INVALID_EP, it_ep_free(left));
    free(passive.memory);
    return checked("ud");
}
