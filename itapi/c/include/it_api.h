/*
 * it_api.h: the Interconnect Transport API (IT-API) 2.1 for C and C++.
 *
 * RDMA for applications: a program creates objects, connects them and posts work requests; events
 * report their results.
 * Written for C99 and C++98 and later. Link with -litapi (pkg-config: itapi).
 *
 * Define the version of the standard that a source is written for, best on the command line; the names of
 * calls whose arguments changed (it_lmr_create, it_rmr_create, it_rmr_bind) mean those of that version:
 *
 *   ITAPI_ENABLE_V21_BINDINGS        2.1: for new programs
 *   ITAPI_ENABLE_V20_BINDINGS        2.0
 *   ITAPI_ENABLE_V10_BINDINGS        1.0; also without any of them, but only so that sources from before
 *                                    these macros compile as they are
 *
 * Further macros:
 *
 *   ITAPI_ZRL_EXTENSIONS             layouts and additions of the Zurich stack: cookies of 24
 *                                    octets, private data of 64 in front of the other members of
 *                                    connection events, itx_*(); both kinds of program may use the
 *                                    same library, even in one process
 *   ITAPI_IANA_PORT_HOST_BYTE_ORDER  ports are in host byte order, not network byte order
 *   ITAPI_SERVICE_ID_HOST_BYTE_ORDER the same for InfiniBand service ids
 *
 * Begin with itw_connect(), itw_listen() and itw_ep_attributes_init() (itapi/address.h);
 * itw_last_error() explains errors. C++11 and later: itapi.hpp has objects that free themselves.
 *
 * Rules for every function
 *
 *   Threads      Any function may be called from any thread at any time. A thread needs a stack of
 *                at least 64 KiB.
 *   Signals      Not from a signal handler: the thread that it interrupts may hold a lock that the
 *                call then waits for, for ever. A handler may write to a descriptor that a thread
 *                polls; it_evd_wait() returns IT_ERR_INTERRUPT when a handler ran.
 *   Ending       Do not cancel a thread inside a call: disable its cancellation around the call. It
 *                would not end a wait: it_evd_wait() is not a cancellation point, and returns first. An
 *                event or it_ia_free() ends a wait. A callback must return: pthread_exit(), longjmp()
 *                and C++ exceptions out of it end the process or leave locks held.
 *   Memory       While the process has no memory, calls that create objects return
 *                IT_ERR_RESOURCES. Existing objects still work and can be closed.
 *   dlclose      Leaves the library in the process: its threads may run.
 *   Failure      A call that does not return IT_SUCCESS changed nothing. itw_last_error() has the reason.
 *   Any time     IT_ERR_IA_CATASTROPHE: the interface adapter failed, or this process was forked
 *                from one that uses IT-API. Fork before the first it_ia_create(), or exec.
 *   Handles      One that is IT_NULL_HANDLE, freed, of another kind, or made up: the INVALID status
 *                of its kind (IT_ERR_INVALID_EP, ...). Handles are names, not addresses.
 *   Pointers     NULL where the text does not allow it: IT_ERR_FAULT. Alignment does not matter.
 *   Values       An enumerator or mask bit that does not exist: the INVALID status of the argument.
 *   Units        Lengths in octets, times in microseconds, ports in network byte order
 *                unless defined otherwise above.
 *   Requests     it_post_*(), *_link(), *_unlink(): IT_SUCCESS means accepted. The outcome is a
 *                completion event on the SEVD of the endpoint, with the caller's cookie. Memory and
 *                handles of a request must stay until then.
 */
#ifndef IT_API_H
#define IT_API_H

/* Which bindings; the newest one wins. */
#if defined(ITAPI_ENABLE_V20_BINDINGS) || defined(ITAPI_ENABLE_V21_BINDINGS)
#undef ITAPI_ENABLE_V10_BINDINGS
#elif !defined(ITAPI_ENABLE_V10_BINDINGS)
#define ITAPI_ENABLE_V10_BINDINGS
#endif

#include "it_api_os_specific.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "itapi/names.h"
#include "itapi/status.h"
#include "itapi/values.h"
#include "itapi/event_types.h"
#include "itapi/types.h"
#include "itapi/attributes.h"
#include "itapi/events.h"

#include "itapi/ia.h"
#include "itapi/evd.h"
#include "itapi/connection.h"
#include "itapi/ep.h"
#include "itapi/memory.h"
#include "itapi/post.h"
#include "itapi/datagram.h"
#include "itapi/warpline.h"
#include "itapi/address.h"
#ifdef ITAPI_ZRL_EXTENSIONS
#include "itapi/zurich.h"
#endif
#if defined(ITAPI_IANA_PORT_HOST_BYTE_ORDER) || defined(ITAPI_SERVICE_ID_HOST_BYTE_ORDER)
#include "itapi/host_order.h"
#endif

#ifdef __cplusplus
}
#endif

#endif
