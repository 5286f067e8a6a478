/* Round trips of Sends: "serve HOST:PORT" echoes, "connect HOST:PORT" measures. */
#include "example.h"

static unsigned char memory[2][1 << 20], wanted[4];
static it_lmr_handle_t lmr;
static it_evd_handle_t work, events, requests;
static it_ep_handle_t ep;
static it_event_t event;

/* Posts a buffer as a receive or, if it has a length, as a Send. */
static bool post(uint64_t buffer, size_t length)
{
    it_lmr_triplet_t all = { lmr, { memory[buffer] }, length ? length : sizeof memory[0] };
    TRY(length ? it_post_send(ep, &all, 1, buffer, SIGNALLED)
               : it_post_recv(ep, &all, 1, buffer, SIGNALLED));
    return true;
}

/* Waits for the posted requests, posts the next receive and echoes; rounds times. */
static bool play(int posted, unsigned long rounds)
{
    for (uint64_t received = 0, length = 0;; posted = 2) {
        while (posted-- > 0) {
            TRY(it_evd_wait(work, IT_TIMEOUT_INFINITE, &event, NULL));
            if (event.dto_cmpl.dto_status != IT_DTO_SUCCESS)
                return false;
            if (event.event_number == IT_DTO_RC_RECV_CMPL_EVENT)
                received = event.dto_cmpl.cookie, length = event.dto_cmpl.transferred_length;
        }
        if (--rounds == 0 || !post(!received, 0) || !post(received, length))
            return rounds == 0;
    }
}

/* Connection handling: a whole connection; size 0 accepts the request in event. */
static bool talk(it_pz_handle_t pz, const char *server, uint32_t size, unsigned long count)
{
    it_ep_attributes_t attr;
    TRY(itw_ep_attributes_init(&attr));
    TRY(it_ep_rc_create(pz, work, work, events, IT_EP_NO_FLAG, &attr, &ep));
    if (!post(0, 0))
        return false;
    TRY(size ? itw_connect(ep, server, wanted, sizeof wanted)
             : it_ep_accept(ep, event.conn_req.cn_est_id, NULL, 0));
    if (!expect(events, IT_CM_MSG_CONN_ESTABLISHED_EVENT, &event))
        return false;
    double begin = now();
    if (size ? post(1, size) && play(2, count) : play(1, 0))
        printf("%lu round trips of %u octets: mean %.1f us\n", count, size, (now() - begin) / count);
    it_ep_disconnect(ep, NULL, 0);
    return expect(events, IT_CM_MSG_CONN_DISCONNECT_EVENT, &event);
}

static bool run(const char *name, bool serves, const char *at, uint32_t size, unsigned long count)
{
    it_ia_handle_t ia;
    it_pz_handle_t pz;
    TRY(it_ia_create(name, 2, 1, &ia));
    TRY(it_pz_create(ia, &pz));
    TRY(it_lmr_create(pz, memory, NULL, sizeof memory, 0, IT_PRIV_LOCAL, 0, 0, &lmr, NULL));
    TRY(it_evd_create(ia, IT_DTO_EVENT_STREAM, 0, 128, 1, NULL, &work, NULL));
    TRY(it_evd_create(ia, IT_CM_MSG_EVENT_STREAM, 0, 4, 1, NULL, &events, NULL));
    put32(wanted, size);
    for (bool well = serves && listen_at(ia, at, &requests); well; it_ep_free(ep)) {
        TRY(it_evd_wait(requests, IT_TIMEOUT_INFINITE, &event, NULL));
        talk(pz, NULL, 0, 0);
    }
    return !serves && talk(pz, at, size, count);
}

int main(int argc, char **argv)
{
    const char *name = option(&argc, argv, "--ia", "vp_softrdma");
    uint32_t size = (uint32_t)strtoul(option(&argc, argv, "--size", "64"), NULL, 10);
    unsigned long count = strtoul(option(&argc, argv, "--count", "10000"), NULL, 10);
    if (argc == 3 && size > 0 && size <= sizeof memory[0] && count > 0)
        return run(name, strcmp(argv[1], "serve") == 0, argv[2], size, count) ? 0 : 1;
    return 2 + fail("usage: ping_pong serve|connect HOST:PORT [--ia NAME] [--size N] [--count N]");
}
