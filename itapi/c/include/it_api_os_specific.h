/*
 * it_api_os_specific.h: what it_api.h needs from the platform, and limits of this implementation.
 *
 * Linux, x86-64 and AArch64. Part of it_api.h, which includes it.
 */
#ifndef IT_API_OS_SPECIFIC_H
#define IT_API_OS_SPECIFIC_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* IT_32BIT asks for lengths of 32 bits, which only a library for 32-bit programs has. */
#if defined(IT_32BIT) && defined(__LP64__)
#error "libitapi for 64-bit programs has lengths of 64 bits: do not define IT_32BIT"
#endif

/* Two names for one member need C11 or an extension that GCC and Clang have had for long. */
#ifdef __GNUC__
#define ITAPI_EXTENSION __extension__
#else
#define ITAPI_EXTENSION
#endif

/** No address: let the library choose. */
#define IT_NO_ADDR NULL
/** Octets of an interface's name with its NUL. */
#define IT_INTERFACE_NAME_SIZE 128

/*
 * What a program may ask for on every interface adapter. One may have more: it_ia_query(), and the
 * calls that create and modify endpoints, state how much.
 */
#define IT_MAX_SEND_SEGMENTS 10
#define IT_MAX_RDMA_READ_SEGMENTS 10
#define IT_MAX_RDMA_WRITE_SEGMENTS 10
#define IT_MAX_RECV_SEGMENTS 10
#define IT_RDMA_INITIATOR_DEPTH 32
#define IT_RDMA_RESPONDER_RESOUCES 16 /* spelt so since its beginnings */
#define IT_RDMA_RESPONDER_RESOURCES IT_RDMA_RESPONDER_RESOUCES

#endif
