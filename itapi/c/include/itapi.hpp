/*
 * itapi.hpp: IT-API for C++11 and later: objects that free themselves, failures that are exceptions.
 *
 * A thin layer over it_api.h in the style of the standard library: each class owns one handle, moves, and
 * does not copy. get() is the handle for all other it_*() calls, which go together with these classes.
 * A member throws itapi::error, which has the status and the text of itw_last_error(). What a peer
 * does is no exception: it arrives as an event. Free in reverse order of making, as scopes do: an object
 * that others still use exists until its adapter is closed.
 *
 * Threads: as in it_api.h; one object of these classes is used, moved or destroyed by one thread at a time,
 * but for what only reads it (post, wait, connect).
 */
#ifndef ITAPI_HPP
#define ITAPI_HPP

#if __cplusplus < 201103L
#error "itapi.hpp needs C++11; it_api.h is for C++98, too"
#endif
#if !defined(ITAPI_ENABLE_V10_BINDINGS) && !defined(ITAPI_ENABLE_V20_BINDINGS)
#ifndef ITAPI_ENABLE_V21_BINDINGS
#define ITAPI_ENABLE_V21_BINDINGS
#endif
#endif
#include "it_api.h"
#ifdef ITAPI_ZRL_EXTENSIONS
#error "itapi.hpp is for the standard's layouts: do not define ITAPI_ZRL_EXTENSIONS"
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace itapi {

/** A call that did not succeed. */
class error : public std::runtime_error {
public:
    error(it_status_t status, const char *call)
        : std::runtime_error(text(status, call)), status_(status) {}

    it_status_t status() const noexcept { return status_; }

private:
    static std::string text(it_status_t status, const char *call) {
        std::string why(itw_last_error(nullptr, 0) + 1, '\0');
        itw_last_error(&why[0], why.size());
        why.pop_back();
        return std::string(call) + ": " + itw_strerror(status) + ": " + why;
    }

    it_status_t status_;
};

inline void check(it_status_t status, const char *call) {
    if (status != IT_SUCCESS)
        throw error(status, call);
}

/** Owns a handle of C. */
template <typename Handle, it_status_t (*Free)(Handle)>
class owner {
public:
    owner() noexcept = default;
    owner(owner &&other) noexcept : handle_(other.release()) {}
    owner &operator=(owner &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    ~owner() {
        if (handle_ != Handle())
            Free(handle_);
    }

    /** For the calls of C; IT_NULL_HANDLE if this was moved from. */
    Handle get() const noexcept { return handle_; }
    /** The caller frees it. */
    Handle release() noexcept {
        Handle handle = handle_;
        handle_ = Handle();
        return handle;
    }
    explicit operator bool() const noexcept { return handle_ != Handle(); }

protected:
    Handle handle_ = Handle();
};

/** How long to wait: microseconds; forever() has no end. */
using duration = std::chrono::microseconds;

inline constexpr duration forever() { return duration::max(); }

/** What happened: an it_event_t, whose members are behind ->, with its text. */
class event {
public:
    const it_event_t *operator->() const noexcept { return &raw_; }
    /** For the calls of C. */
    it_event_t *get() noexcept { return &raw_; }

    it_event_type_t type() const noexcept { return raw_.event_number; }
    /** A work request that was carried out. */
    bool done() const noexcept { return raw_.dto_cmpl.dto_status == IT_DTO_SUCCESS; }
    /** One line with the event, its object, and the cause. */
    std::string text() const {
        std::string text(itw_event_text(&raw_, nullptr, 0) + 1, '\0');
        itw_event_text(&raw_, &text[0], text.size());
        text.pop_back();
        return text;
    }

private:
    it_event_t raw_ = it_event_t();
};

/** An interface adapter: a provider, or one of its devices. */
class ia : public owner<it_ia_handle_t, it_ia_free> {
public:
    explicit ia(const char *name = "vp_softrdma") {
        check(it_ia_create(name, 2, 1, &handle_), "it_ia_create");
    }
};

/** A protection zone. */
class pz : public owner<it_pz_handle_t, it_pz_free> {
public:
    explicit pz(const ia &of) { check(it_pz_create(of.get(), &handle_), "it_pz_create"); }
};

/** An event dispatcher of one stream. */
class evd : public owner<it_evd_handle_t, it_evd_free> {
public:
    /** Room for `depth` events of a stream such as IT_DTO_EVENT_STREAM. */
    evd(const ia &of, it_event_type_t stream, std::size_t depth = 64) {
        check(it_evd_create(of.get(), stream, it_evd_flags_t(), depth, 1, nullptr, &handle_, nullptr),
              "it_evd_create");
    }

    /** Takes the next event if there is one. */
    bool try_next(event &out) const {
        it_status_t status = it_evd_dequeue(get(), out.get());
        if (status == IT_ERR_QUEUE_EMPTY)
            return false;
        check(status, "it_evd_dequeue");
        return true;
    }

    /** Waits for the next event; false: it did not come in time. A signal handler does not end the wait. */
    template <typename Rep, typename Period>
    bool wait_for(event &out, std::chrono::duration<Rep, Period> time) const {
        using clock = std::chrono::steady_clock;
        const bool bounded = std::chrono::duration_cast<std::chrono::hours>(time).count() < 1000000;
        const clock::time_point end = bounded ? clock::now() + time : clock::time_point::max();
        for (;;) {
            const duration left = std::chrono::duration_cast<duration>(end - clock::now());
            const std::uint64_t timeout =
                bounded ? static_cast<std::uint64_t>(left.count() > 0 ? left.count() : 0)
                        : IT_TIMEOUT_INFINITE;
            const it_status_t status = it_evd_wait(get(), timeout, out.get(), nullptr);
            if (status == IT_ERR_TIMEOUT_EXPIRED)
                return false;
            if (status != IT_ERR_INTERRUPT) {
                check(status, "it_evd_wait");
                return true;
            }
        }
    }

    /** Waits for the next event as long as it takes. */
    event next() const {
        event out;
        wait_for(out, forever());
        return out;
    }
};

/** Registered memory. It does not own the memory, which must outlive it. */
class lmr : public owner<it_lmr_handle_t, it_lmr_free> {
public:
    lmr(const pz &in, void *memory, std::size_t length, it_mem_priv_t rights = IT_PRIV_LOCAL)
        : memory_(static_cast<unsigned char *>(memory)), length_(length) {
        check(it_lmr_create21(in.get(), memory, nullptr, length, IT_ADDR_MODE_ABSOLUTE, rights,
                              IT_LMR_FLAG_NONE, 0, &handle_, &context_),
              "it_lmr_create");
    }

    /** Part of it, for a work request. */
    it_lmr_triplet_t piece(std::size_t offset, std::size_t length) const {
        it_lmr_triplet_t out = it_lmr_triplet_t();
        out.lmr = get();
        out.addr.abs = memory_ + offset;
        out.length = length;
        return out;
    }
    it_lmr_triplet_t all() const { return piece(0, length_); }

    /** What a peer needs to name it: this, and the address of an octet. */
    it_rmr_context_t context() const noexcept { return context_; }
    it_rdma_addr_t address(std::size_t offset = 0) const { return it_make_rdma_addr_absolute(memory_ + offset); }

private:
    unsigned char *memory_;
    std::size_t length_;
    it_rmr_context_t context_ = 0;
};

/** Attributes of an endpoint, filled in by itw_ep_attributes_init(). */
struct ep_attributes : it_ep_attributes_t {
    ep_attributes() { check(itw_ep_attributes_init(this), "itw_ep_attributes_init"); }
};

/** The request has a completion, which wakes a thread that waits. */
constexpr it_dto_flags_t signalled = static_cast<it_dto_flags_t>(IT_COMPLETION_FLAG | IT_NOTIFY_FLAG);

/** An endpoint of a connection. */
class ep : public owner<it_ep_handle_t, it_ep_free> {
public:
    /** `work`: of IT_DTO_EVENT_STREAM; `connection`: of IT_CM_MSG_EVENT_STREAM. */
    ep(const pz &in, const evd &work, const evd &connection,
       const it_ep_attributes_t &attributes = ep_attributes()) {
        check(it_ep_rc_create(in.get(), work.get(), work.get(), connection.get(), IT_EP_NO_FLAG, &attributes,
                              &handle_),
              "it_ep_rc_create");
    }

    /** To "HOST:PORT", see itw_connect(); an event reports the result. */
    void connect(const std::string &address, const std::string &private_data = std::string()) const {
        check(itw_connect(get(), address.c_str(), octets(private_data), private_data.size()), "itw_connect");
    }
    /** Accepts the request of an IT_CM_REQ_CONN_REQUEST_EVENT; post receives before. */
    void accept(const event &request, const std::string &private_data = std::string()) const {
        check(it_ep_accept(get(), request->conn_req.cn_est_id, octets(private_data), private_data.size()),
              "it_ep_accept");
    }
    /** What carries its octets, see itw_ep_carrier(); empty without a connection. */
    std::string carrier() const {
        std::string text(itw_ep_carrier(get(), nullptr, 0) + 1, '\0');
        itw_ep_carrier(get(), &text[0], text.size());
        text.resize(text.size() - 1);
        return text;
    }
    void disconnect() const { check(it_ep_disconnect(get(), nullptr, 0), "it_ep_disconnect"); }
    /** Makes an endpoint whose connection is over ready for another. */
    void reset() const { check(it_ep_reset(get()), "it_ep_reset"); }

    void post_recv(it_lmr_triplet_t into, it_dto_cookie_t cookie) const {
        check(it_post_recv(get(), &into, 1, cookie, signalled), "it_post_recv");
    }
    void post_send(it_lmr_triplet_t from, it_dto_cookie_t cookie, it_dto_flags_t flags = signalled) const {
        check(it_post_send(get(), &from, 1, cookie, flags), "it_post_send");
    }
    void post_write(it_lmr_triplet_t from, it_rdma_addr_t to, it_rmr_context_t context,
                    it_dto_cookie_t cookie, it_dto_flags_t flags = signalled) const {
        check(it_post_rdma_write(get(), &from, 1, cookie, flags, to, context), "it_post_rdma_write");
    }
    void post_read(it_lmr_triplet_t into, it_rdma_addr_t from, it_rmr_context_t context,
                   it_dto_cookie_t cookie, it_dto_flags_t flags = signalled) const {
        check(it_post_rdma_read(get(), &into, 1, cookie, flags, from, context), "it_post_rdma_read");
    }

private:
    static const unsigned char *octets(const std::string &text) {
        return text.empty() ? nullptr : reinterpret_cast<const unsigned char *>(text.data());
    }
};

/** A listener at "HOST:PORT". */
class listener : public owner<it_listen_handle_t, it_listen_free> {
public:
    /** `requests`: of IT_CM_REQ_EVENT_STREAM. Port 0: one that is free, see address(). */
    listener(const ia &of, const std::string &address, const evd &requests) {
        check(itw_listen(of.get(), address.c_str(), requests.get(), &handle_), "itw_listen");
    }

    /** Where it listens, with the port that it has got. */
    std::string address() const {
        std::string text(itw_listen_address(get(), nullptr, 0) + 1, '\0');
        itw_listen_address(get(), &text[0], text.size());
        text.pop_back();
        return text;
    }
};

/** Rejects a connection request. */
inline void reject(const event &request) {
    check(it_reject(request->conn_req.cn_est_id, nullptr, 0), "it_reject");
}

} // namespace itapi

#endif
