/*
 * Tests that every call for unreliable datagrams is refused on iWARP, which has none.
 */
#include "check.h"

#include <string.h>

int main(void)
{
    struct side side;
    it_ep_attributes_t attributes = check_attributes();
    it_path_t path = check_loopback();
    it_conn_qual_t qualifier = check_port(htons(7));
    it_remote_ep_info_t info = {1, 2};
    it_addr_handle_t addr = NULL;
    it_addr_param_t addr_params;
    it_ud_svc_req_handle_t service = NULL;
    it_ud_svc_req_param_t service_params;
    it_dg_remote_ep_addr_t remote;
    it_ep_handle_t ep;
    it_lmr_triplet_t segment;
    side_open(&side);
    segment = piece(&side, 0, 8);
    memset(&addr_params, 0, sizeof addr_params);
    memset(&remote, 0, sizeof remote);

    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_ep_ud_create(side.pz, side.sends, side.receives,
                                                    &attributes, 0, &ep));
    EXPECT(IT_ERR_INVALID_PZ, it_ep_ud_create(NULL, side.sends, side.receives, &attributes, 0,
                                              &ep));
    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_address_handle_create(side.pz, &path, (it_ah_flags_t)0,
                                                             &addr));
    EXPECT(IT_ERR_INVALID_PZ, it_address_handle_create(NULL, &path, IT_AH_PATH_COMPLETE, &addr));
    EXPECT(IT_ERR_INVALID_AH, it_address_handle_free(NULL));
    EXPECT(IT_ERR_INVALID_AH, it_address_handle_free((it_addr_handle_t)side.ep));
    EXPECT(IT_ERR_INVALID_AH, it_address_handle_modify(NULL, IT_ADDR_PARAM_PATH, &addr_params));
    EXPECT(IT_ERR_INVALID_AH, it_address_handle_query((it_addr_handle_t)made_up(),
                                                      IT_ADDR_PARAM_ALL, &addr_params));
    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_post_sendto(side.ep, &segment, 1, cookie(1), SIGNALLED,
                                                  &remote));
    EXPECT(IT_ERR_INVALID_EP, it_post_sendto(NULL, &segment, 1, cookie(1), SIGNALLED, &remote));
    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_post_recvfrom(side.ep, &segment, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_EP, it_post_recvfrom(NULL, &segment, 1, cookie(1), SIGNALLED));

    EXPECT(IT_ERR_OP_NOT_SUPPORTED,
           it_ud_service_request_handle_create(&qualifier, side.conn, &path, NULL, 0, &service));
    EXPECT(IT_ERR_INVALID_EVD,
           it_ud_service_request_handle_create(&qualifier, NULL, &path, NULL, 0, &service));
    EXPECT(IT_ERR_INVALID_UD_SVC, it_ud_service_request_handle_free(NULL));
    EXPECT(IT_ERR_INVALID_UD_SVC,
           it_ud_service_request_handle_query(NULL, IT_UD_PARAM_ALL, &service_params));
    EXPECT(IT_ERR_INVALID_UD_SVC, it_ud_service_request(NULL));
    EXPECT(IT_ERR_INVALID_UD_SVC, it_ud_service_request((it_ud_svc_req_handle_t)made_up()));
    EXPECT(IT_ERR_OP_NOT_SUPPORTED,
           it_ud_service_reply(99, IT_UD_NO_EP_AVAILABLE, info, NULL, 0));

    side_close(&side);
    return checked("datagram");
}
