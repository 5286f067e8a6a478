/*
 * Tests of itapi.hpp: a connection made of RAII objects; moves, failures, waits with time-outs.
 */
#include <itapi.hpp>

#include "check.h"

#include <cstring>
#include <string>

namespace {

const std::chrono::minutes patience(1);

/* One end: the objects of a connection, in order of creation. */
struct end {
    itapi::ia ia;
    itapi::pz pz{ia};
    itapi::evd work{ia, IT_DTO_EVENT_STREAM};
    itapi::evd connection{ia, IT_CM_MSG_EVENT_STREAM};
    itapi::evd requests{ia, IT_CM_REQ_EVENT_STREAM};
    unsigned char memory[256] = {0};
    itapi::lmr lmr{pz, memory, sizeof memory, IT_PRIV_ALL};
    itapi::ep ep{pz, work, connection};
};

itapi::event expect(const itapi::evd &evd, it_event_type_t type) {
    itapi::event event;
    CHECK(evd.wait_for(event, patience));
    CHECK(event.type() == type);
    if (event.type() != type)
        std::fprintf(stderr, "    got %s\n", event.text().c_str());
    return event;
}

void failures(const end &side) {
    try {
        side.ep.connect("127.0.0.1");
        CHECK(!"a connection without a port");
    } catch (const itapi::error &error) {
        CHECK(error.status() == IT_ERR_INVALID_CONN_QUAL);
        CHECK(std::strstr(error.what(), "itw_connect: IT_ERR_INVALID_CONN_QUAL") != nullptr);
        CHECK(std::strstr(error.what(), "names no port") != nullptr);
    }
    try {
        itapi::ia none("none-such");
        CHECK(!"an adapter with an unknown name");
    } catch (const itapi::error &error) {
        CHECK(error.status() == IT_ERR_INVALID_NAME);
    }
    itapi::event event;
    CHECK(!side.work.try_next(event));
    CHECK(!side.work.wait_for(event, std::chrono::milliseconds(1)));
}

void moves() {
    itapi::ia ia;
    itapi::pz first(ia);
    it_pz_handle_t handle = first.get();
    itapi::pz second(std::move(first));
    CHECK(!first && second && second.get() == handle);
    first = std::move(second);
    CHECK(first.get() == handle && !second);
    EXPECT(IT_SUCCESS, it_pz_free(first.release()));
    /* Freed at the end of its scope: the adapter's handle is stale. */
    it_ia_handle_t stale;
    {
        itapi::ia inner;
        stale = inner.get();
    }
    EXPECT(IT_ERR_INVALID_IA, it_ia_free(stale));
}

void talks() {
    end active, passive;
    failures(active);
    itapi::listener listener(passive.ia, "127.0.0.1:0", passive.requests);
    passive.ep.post_recv(passive.lmr.piece(0, 16), 7);
    active.ep.connect(listener.address(), "hello");
    itapi::event request = expect(passive.requests, IT_CM_REQ_CONN_REQUEST_EVENT);
    CHECK(std::memcmp(request->conn_req.private_data, "hello", 5) == 0);
    passive.ep.accept(request);
    expect(active.connection, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    expect(passive.connection, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    std::memcpy(active.memory, "by Send, written", 16);
    active.ep.post_write(active.lmr.piece(9, 7), passive.lmr.address(100), passive.lmr.context(), 1);
    active.ep.post_send(active.lmr.piece(0, 7), 2);
    CHECK(expect(active.work, IT_DTO_RDMA_WRITE_CMPL_EVENT).done());
    CHECK(expect(active.work, IT_DTO_SEND_CMPL_EVENT).done());
    itapi::event received = expect(passive.work, IT_DTO_RC_RECV_CMPL_EVENT);
    CHECK(received.done() && received->dto_cmpl.cookie == 7);
    CHECK(received->dto_cmpl.transferred_length == 7 && std::memcmp(passive.memory, "by Send", 7) == 0);
    CHECK(std::memcmp(passive.memory + 100, "written", 7) == 0);
    active.ep.post_read(active.lmr.piece(200, 7), passive.lmr.address(100), passive.lmr.context(), 3);
    CHECK(expect(active.work, IT_DTO_RDMA_READ_CMPL_EVENT).done());
    CHECK(std::memcmp(active.memory + 200, "written", 7) == 0);
    CHECK(!active.ep.carrier().empty() && !passive.ep.carrier().empty());
    active.ep.disconnect();
    expect(active.connection, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    CHECK(!passive.connection.next().text().empty());
    /* Another connection, which is rejected. */
    active.ep.reset();
    active.ep.connect(listener.address());
    itapi::reject(expect(passive.requests, IT_CM_REQ_CONN_REQUEST_EVENT));
    expect(active.connection, IT_CM_MSG_CONN_PEER_REJECT_EVENT);
}

} // namespace

int main() {
    moves();
    talks();
    return checked("raii");
}
