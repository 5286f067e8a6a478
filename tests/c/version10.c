/*
 * Test of a program for version 1.0: its names, members and functions.
 */
#include "check.h"

#include <string.h>

int main(void)
{
    struct side active, passive;
    it_lmr_handle_t lmr;
    it_rmr_handle_t rmr;
    it_rmr_param_t params;
    it_rmr_context_t context = 0, ignored = 0;
    it_ep_attributes_t attributes = check_attributes();
    it_lmr_triplet_t segment;
    it_ia_info_t *info;
    static unsigned char memory[256];
    attributes.srv.rc.rdma_read_inflight_incoming = 2;
    attributes.srv.rc.rdma_read_inflight_outgoing = 3;
    CHECK(attributes.srv.rc.rdma_read_ird == 2 && attributes.srv.rc.rdma_read_ord == 3);
    sides_open(&active, &passive);
    MUST(it_ia_query(active.ia, &info));
    CHECK(info->ird_support == info->ord_support);
    it_ia_info_free(info);

    EXPECT(IT_ERR_INVALID_PZ, it_lmr_create(NULL, memory, sizeof memory, IT_PRIV_DEFAULT,
                                            IT_LMR_FLAG_NONE, 0, &lmr, &ignored));
    MUST(it_lmr_create10(passive.pz, memory, sizeof memory, IT_PRIV_DEFAULT, IT_LMR_FLAG_NONE, 0,
                         &lmr, &ignored));
    EXPECT(IT_ERR_INVALID_PZ, it_rmr_create(NULL, &rmr));
    EXPECT(IT_ERR_FAULT, it_rmr_create10(passive.pz, NULL));
    MUST(it_rmr_create(passive.pz, &rmr));
    EXPECT(IT_SUCCESS, it_rmr_query(rmr, IT_RMR_PARAM_BOUND, &params));
    CHECK(params.bound == IT_FALSE);
    EXPECT(IT_ERR_INVALID_RMR,
           it_rmr_bind10(NULL, passive.lmr, passive.memory, 128, IT_PRIV_REMOTE, passive.ep,
                         cookie(1), SIGNALLED, &context));
    MUST(it_rmr_bind(rmr, passive.lmr, passive.memory, 128, IT_PRIV_REMOTE, passive.ep, cookie(1),
                     SIGNALLED, &context));
    check_completion(passive.sends, IT_RMR_BIND_CMPL_EVENT, IT_DTO_SUCCESS, 1);
    EXPECT(IT_SUCCESS, it_rmr_query(rmr, IT_RMR_PARAM_BOUND, &params));
    CHECK(params.bound == IT_TRUE);

    segment = piece(&active, 0, 11);
    memcpy(active.memory, "version 1.0", 11);
    EXPECT(IT_SUCCESS, it_lmr_sync_rdma_read(&segment, 1));
    MUST(it_post_rdma_write(active.ep, &segment, 1, cookie(2), SIGNALLED,
                            it_make_rdma_addr(passive.memory), context));
    check_completion(active.sends, IT_DTO_RDMA_WRITE_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    segment = piece(&active, 100, 11);
    MUST(it_post_rdma_read(active.ep, &segment, 1, cookie(3), SIGNALLED,
                           it_make_rdma_addr(passive.memory), context));
    check_completion(active.sends, IT_DTO_RDMA_READ_CMPL_EVENT, IT_DTO_SUCCESS, 3);
    EXPECT(IT_SUCCESS, it_lmr_sync_rdma_write(&segment, 1));
    CHECK(memcmp(active.memory + 100, "version 1.0", 11) == 0);

    MUST(it_rmr_unbind(rmr, passive.ep, cookie(4), SIGNALLED));
    check_completion(passive.sends, IT_RMR_BIND_CMPL_EVENT, IT_DTO_SUCCESS, 4);
    EXPECT(IT_SUCCESS, it_rmr_free(rmr));
    EXPECT(IT_SUCCESS, it_lmr_free(lmr));
    side_close(&active);
    side_close(&passive);
    return checked("version10");
}
