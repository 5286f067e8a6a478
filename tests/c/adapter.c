/*
 * Tests of interface adapters, protection zones, paths and addresses, contexts, handle kinds, byte order.
 */
#include "check.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static void interfaces(void)
{
    it_interface_t list[32];
    size_t room = 32, total = 0, none = 0, i;
    it_ia_handle_t ia;
    it_interface_list(list, &room, &total);
    CHECK(total >= 1 && room == (total < 32 ? total : 32));
    for (i = 0; i < room; i++)
        CHECK(memchr(list[i].name, 0, sizeof list[i].name) != NULL && list[i].name[0] != 0);
    it_interface_list(NULL, &none, &total);
    CHECK(none == 0 && total >= 1);
    it_interface_list(NULL, NULL, &total);
    it_interface_list(NULL, NULL, NULL);
    MUST(it_ia_create(list[0].name, list[0].major_version, list[0].minor_version, &ia));
    EXPECT(IT_SUCCESS, it_ia_free(ia));
}

static void opening(void)
{
    it_ia_handle_t ia = NULL;
    char unterminated[4096];
    EXPECT(IT_SUCCESS, it_ia_create("vp_softrdma", 2, 1, &ia));
    EXPECT(IT_SUCCESS, it_ia_free(ia));
    EXPECT(IT_ERR_INVALID_IA, it_ia_free(ia));
    EXPECT(IT_SUCCESS, it_ia_create("vp_softrdma", 1, 0, &ia));
    EXPECT(IT_SUCCESS, it_ia_free(ia));
    EXPECT(IT_ERR_INVALID_NAME, it_ia_create("no such adapter", 2, 0, &ia));
    EXPECT(IT_ERR_INVALID_NAME, it_ia_create("", 2, 0, &ia));
    EXPECT(IT_ERR_INVALID_NAME, it_ia_create(NULL, 2, 0, &ia));
    memset(unterminated, 'x', sizeof unterminated);
    unterminated[sizeof unterminated - 1] = 0;
    EXPECT(IT_ERR_INVALID_NAME, it_ia_create(unterminated, 2, 0, &ia));
    EXPECT(IT_ERR_INVALID_MAJOR_VERSION, it_ia_create("vp_softrdma", 3, 0, &ia));
    EXPECT(IT_ERR_INVALID_MAJOR_VERSION, it_ia_create("vp_softrdma", 0, 0, &ia));
    EXPECT(IT_ERR_INVALID_MINOR_VERSION, it_ia_create("vp_softrdma", 2, 2, &ia));
    EXPECT(IT_ERR_FAULT, it_ia_create("vp_softrdma", 2, 0, NULL));
    EXPECT(IT_ERR_INVALID_IA, it_ia_free(NULL));
    EXPECT(IT_ERR_INVALID_IA, it_ia_free((it_ia_handle_t)made_up()));
}

static void describing(it_ia_handle_t ia)
{
    it_ia_info_t *info = NULL;
    size_t i;
    EXPECT(IT_ERR_FAULT, it_ia_query(ia, NULL));
    EXPECT(IT_ERR_INVALID_IA, it_ia_query(NULL, &info));
    MUST(it_ia_query(ia, &info));
    CHECK(info->ia_name != NULL && info->ia_name[0] != 0);
    CHECK(info->api_major_version == 2 && info->api_minor_version <= 1);
    CHECK(info->transport_type == IT_IWARP_TCP_TRANSPORT);
    CHECK(info->supported_service_types == IT_RC_SERVICE);
    CHECK(info->socket_conversion_support == IT_TRUE);
    CHECK(info->three_way_handshake_support == IT_FALSE);
    CHECK(info->private_data_support == IT_TRUE);
    CHECK(info->connect_private_data_len > 0);
    CHECK(info->connect_private_data_len <= IT_MAX_PRIV_DATA);
    CHECK(info->accept_private_data_len > 0 && info->accept_private_data_len <= IT_MAX_PRIV_DATA);
    CHECK(info->reject_private_data_len > 0 && info->reject_private_data_len <= IT_MAX_PRIV_DATA);
    CHECK(info->disconnect_private_data_len == 0);
    CHECK(info->ud_req_private_data_len == 0 && info->ud_rep_private_data_len == 0);
    CHECK(info->affiliated_err_evd == NULL && info->unaffiliated_err_evd == NULL);
    CHECK(info->num_spigots >= 1 && info->spigot_info != NULL);
    for (i = 0; i < info->num_spigots; i++) {
        const it_spigot_info_t *spigot = &info->spigot_info[i];
        CHECK(spigot->max_rc_send_len > 0 && spigot->max_rc_rdma_len > 0);
        CHECK(spigot->max_ud_send_len == 0);
        CHECK(spigot->passive_side_conn_qual & IT_IANA_PORT);
        CHECK(spigot->num_net_addr == 0 || spigot->net_addr != NULL);
    }
    it_ia_info_free(info);
    it_ia_info_free(NULL);
    it_ia_info_free((it_ia_info_t *)made_up());
}

static void zones(it_ia_handle_t ia)
{
    it_pz_handle_t pz;
    it_pz_param_t params;
    it_lmr_handle_t lmr;
    char memory[64];
    EXPECT(IT_ERR_INVALID_IA, it_pz_create(NULL, &pz));
    EXPECT(IT_ERR_FAULT, it_pz_create(ia, NULL));
    MUST(it_pz_create(ia, &pz));
    EXPECT(IT_SUCCESS, it_pz_query(pz, IT_PZ_PARAM_ALL, &params));
    CHECK(params.ia == ia);
    EXPECT(IT_ERR_INVALID_MASK, it_pz_query(pz, (it_pz_param_mask_t)0x40, &params));
    EXPECT(IT_ERR_FAULT, it_pz_query(pz, IT_PZ_PARAM_IA, NULL));
    EXPECT(IT_ERR_INVALID_PZ, it_pz_query((it_pz_handle_t)ia, IT_PZ_PARAM_IA, &params));
    MUST(it_lmr_create21(pz, memory, NULL, sizeof memory, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_LOCAL,
                         IT_LMR_FLAG_NONE, 0, &lmr, NULL));
    EXPECT(IT_ERR_PZ_BUSY, it_pz_free(pz));
    EXPECT(IT_SUCCESS, it_lmr_free(lmr));
    EXPECT(IT_SUCCESS, it_pz_free(pz));
    EXPECT(IT_ERR_INVALID_PZ, it_pz_free(pz));
    EXPECT(IT_ERR_INVALID_PZ, it_pz_free(NULL));
}

static void paths(it_ia_handle_t ia)
{
    it_net_addr_t there;
    it_path_t found[4];
    size_t room = 4, total = 0, spigot = side_spigot(ia);
    memset(&there, 0, sizeof there);
    there.addr_type = IT_IPV4;
    there.addr.ipv4.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT(IT_SUCCESS, it_get_pathinfo(ia, spigot, &there, &room, &total, found));
    CHECK(total >= 1 && room >= 1 && room <= 4);
    CHECK(found[0].spigot_id == spigot);
    CHECK(found[0].u.iwarp.ip_vers == IT_IP_VERS_IPV4);
    CHECK(found[0].remote.iwarp.raddr.ipv4.s_addr == htonl(INADDR_LOOPBACK));
    room = 0;
    EXPECT(IT_SUCCESS, it_get_pathinfo(ia, spigot, &there, &room, &total, NULL));
    CHECK(total >= 1 && room == 0);
    room = 4;
    EXPECT(IT_ERR_INVALID_IA, it_get_pathinfo(NULL, spigot, &there, &room, &total, found));
    EXPECT(IT_ERR_INVALID_SPIGOT, it_get_pathinfo(ia, 4711, &there, &room, &total, found));
    EXPECT(IT_ERR_FAULT, it_get_pathinfo(ia, spigot, NULL, &room, &total, found));
    EXPECT(IT_ERR_FAULT, it_get_pathinfo(ia, spigot, &there, &room, &total, NULL));
    there.addr_type = (it_net_addr_type_t)77;
    EXPECT(IT_ERR_INVALID_NETADDR, it_get_pathinfo(ia, spigot, &there, &room, &total, found));
}

static void addresses(void)
{
    it_net_addr_t four, six, back;
    memset(&four, 0, sizeof four);
    four.addr_type = IT_IPV4;
    four.addr.ipv4.s_addr = htonl(0xc0000207);
    EXPECT(IT_SUCCESS, it_convert_net_addr(&four, IT_IPV6, &six));
    CHECK(six.addr_type == IT_IPV6 && IN6_IS_ADDR_V4MAPPED(&six.addr.ipv6));
    EXPECT(IT_SUCCESS, it_convert_net_addr(&six, IT_IPV4, &back));
    CHECK(back.addr_type == IT_IPV4 && back.addr.ipv4.s_addr == htonl(0xc0000207));
    EXPECT(IT_SUCCESS, it_convert_net_addr(&six, IT_IB_GID, &back));
    CHECK(back.addr_type == IT_IB_GID);
    six.addr.ipv6.s6_addr[0] = 0x20;
    EXPECT(IT_ERR_INVALID_CONVERSION, it_convert_net_addr(&six, IT_IPV4, &back));
    EXPECT(IT_ERR_INVALID_CONVERSION, it_convert_net_addr(&four, IT_VIA_HOSTADDR, &back));
    EXPECT(IT_ERR_INVALID_CONVERSION, it_convert_net_addr(&four, (it_net_addr_type_t)99, &back));
    EXPECT(IT_ERR_FAULT, it_convert_net_addr(NULL, IT_IPV6, &back));
    EXPECT(IT_ERR_FAULT, it_convert_net_addr(&four, IT_IPV6, NULL));
    four.addr_type = (it_net_addr_type_t)0;
    EXPECT(IT_ERR_INVALID_NETADDR, it_convert_net_addr(&four, IT_IPV6, &back));
}

static void contexts(const struct side *side)
{
    it_context_t context, got;
    it_handle_type_enum_t kind;
    EXPECT(IT_ERR_NO_CONTEXT, it_get_consumer_context(side->ep, &got));
    context.ptr = &context;
    EXPECT(IT_SUCCESS, it_set_consumer_context(side->ep, context));
    EXPECT(IT_SUCCESS, it_get_consumer_context(side->ep, &got));
    CHECK(got.ptr == &context);
    context.index = 42;
    EXPECT(IT_SUCCESS, it_set_consumer_context(side->ep, context));
    EXPECT(IT_SUCCESS, it_get_consumer_context(side->ep, &got));
    CHECK(got.index == 42);
    EXPECT(IT_ERR_NO_CONTEXT, it_get_consumer_context(side->pz, &got));
    EXPECT(IT_ERR_FAULT, it_get_consumer_context(side->ep, NULL));
    EXPECT(IT_ERR_INVALID_HANDLE, it_get_consumer_context(NULL, &got));
    EXPECT(IT_ERR_INVALID_HANDLE, it_set_consumer_context(made_up(), context));
    EXPECT(IT_SUCCESS, it_get_handle_type(side->ia, &kind));
    CHECK(kind == IT_HANDLE_TYPE_IA);
    EXPECT(IT_SUCCESS, it_get_handle_type(side->pz, &kind));
    CHECK(kind == IT_HANDLE_TYPE_PZ);
    EXPECT(IT_SUCCESS, it_get_handle_type(side->conn, &kind));
    CHECK(kind == IT_HANDLE_TYPE_EVD);
    EXPECT(IT_SUCCESS, it_get_handle_type(side->ep, &kind));
    CHECK(kind == IT_HANDLE_TYPE_EP);
    EXPECT(IT_SUCCESS, it_get_handle_type(side->lmr, &kind));
    CHECK(kind == IT_HANDLE_TYPE_LMR);
    EXPECT(IT_ERR_INVALID_HANDLE, it_get_handle_type(NULL, &kind));
    EXPECT(IT_ERR_FAULT, it_get_handle_type(side->ep, NULL));
}

static void closing_closes_all(void)
{
    struct side side;
    it_handle_type_enum_t kind;
    side_open(&side);
    EXPECT(IT_SUCCESS, it_ia_free(side.ia));
    EXPECT(IT_ERR_INVALID_HANDLE, it_get_handle_type(side.ep, &kind));
    EXPECT(IT_ERR_INVALID_EP, it_ep_free(side.ep));
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_free(side.lmr));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_free(side.sends));
    EXPECT(IT_ERR_INVALID_PZ, it_pz_free(side.pz));
    free(side.memory);
}

int main(void)
{
    struct side side;
    interfaces();
    opening();
    side_open(&side);
    describing(side.ia);
    zones(side.ia);
    paths(side.ia);
    addresses();
    contexts(&side);
    side_close(&side);
    closing_closes_all();
    CHECK(it_ntoh64(it_hton64(0x0123456789abcdef)) == 0x0123456789abcdef);
    CHECK(it_hton64(1) == (htonl(1) == 1 ? 1 : (uint64_t)1 << 56));
    return checked("adapter");
}
