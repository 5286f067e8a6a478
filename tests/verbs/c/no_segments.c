/* To be preloaded: a kernel that does not cut what is sent into datagrams (udp(7), UDP_SEGMENT). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static int wants_segments(const struct msghdr *message)
{
	struct msghdr *all = (struct msghdr *)message;
	struct cmsghdr *one;

	for (one = CMSG_FIRSTHDR(all); one; one = CMSG_NXTHDR(all, one))
		if (one->cmsg_level == IPPROTO_UDP && one->cmsg_type == UDP_SEGMENT)
			return 1;
	return 0;
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
	static const char refused[] = "UDP_SEGMENT refused\n";
	static ssize_t (*kernel)(int, const struct msghdr *, int);
	static int told;

	if (wants_segments(message)) {
		if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED) &&
		    write(STDERR_FILENO, refused, sizeof(refused) - 1) < 0)
			_exit(1);
		errno = EIO;
		return -1;
	}
	if (!kernel)
		kernel = (ssize_t (*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
	return kernel(socket, message, flags);
}
