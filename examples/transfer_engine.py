"""Moves memory between two processes by the transfer engine Mooncake or NIXL, verifies it, and prints rates and times.

  transfer_engine.py ENGINE target ADDRESS              offers memory; ADDRESS is this host's
  transfer_engine.py ENGINE initiator ADDRESS TARGET    reads and writes the memory at the address TARGET

ENGINE is mooncake or nixl. Both sides need the same options:
"""

import argparse
import ctypes
import random
import socket
import statistics
import sys
import time

PORT = 18600
SMALL = 8, 4096, 65536
# Small reads: at most so many, and after so many seconds no further one.
TIMES, ENOUGH = 200, 1
LONGEST = 60


class Mooncake:
    octets = 64 << 20

    def __init__(self, options):
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        if self.engine.initialize(options.address, "P2PHANDSHAKE", options.protocol, options.device):
            sys.exit("the engine cannot be initialized")
        self.address = options.address

    def register(self, memory):
        self.memory = ctypes.addressof(memory)
        if self.engine.register_memory(self.memory, len(memory)):
            sys.exit("the memory cannot be registered")

    def offer(self):
        return f"{self.memory} {self.address}:{self.engine.get_rpc_port()}".encode()

    def accept(self, offer):
        memory, self.peer = offer.decode().split()
        self.remote = int(memory)

    def read(self, octets):
        self._check(self.engine.transfer_sync_read(self.peer, self.memory, self.remote, octets))

    def write(self, octets):
        self._check(self.engine.transfer_sync_write(self.peer, self.memory, self.remote, octets))

    def _check(self, status):
        if status:
            sys.exit(f"the transfer failed: {status}")


class Nixl:
    octets = 32 << 20

    def __init__(self, options):
        from nixl._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(options.role, nixl_agent_config(backends=[]))
        # The backend UCX takes its transports from the variable UCX_TLS, and here from its own option.
        parameters = {"device_list": options.device} if options.device else {}
        self.agent.create_backend("UCX", parameters)

    def register(self, memory):
        self.memory = ctypes.addressof(memory)
        self.agent.register_memory([(self.memory, len(memory), 0, "")], "DRAM")

    def offer(self):
        return self.memory.to_bytes(8, "little") + self.agent.get_agent_metadata()

    def accept(self, offer):
        self.remote = int.from_bytes(offer[:8], "little")
        self.peer = self.agent.add_remote_agent(offer[8:])

    def read(self, octets):
        self._transfer("READ", octets)

    def write(self, octets):
        self._transfer("WRITE", octets)

    def _transfer(self, what, octets):
        here, there = (
            self.agent.get_xfer_descs([(memory, octets, 0)], "DRAM") for memory in (self.memory, self.remote)
        )
        handle = self.agent.initialize_xfer(what, here, there, self.peer)
        begun = time.monotonic()
        state = self.agent.transfer(handle)
        while state == "PROC" and time.monotonic() - begun < LONGEST:
            state = self.agent.check_xfer_state(handle)
        if state != "DONE":
            sys.exit(f"the transfer failed: {state}")
        self.agent.release_xfer_handle(handle)


def pattern(seed, octets):
    return random.Random(seed).randbytes(octets)


def fill(memory, seed):
    ctypes.memmove(memory, pattern(seed, len(memory)), len(memory))


def target(engine, memory, options):
    fill(memory, 1)
    with socket.create_server((options.address, PORT)) as listener:
        peer, _ = listener.accept()
    with peer:
        offer = engine.offer()
        peer.sendall(len(offer).to_bytes(4, "little") + offer)
        if not peer.recv(1):
            sys.exit("the initiator has failed")
        good = bytes(memory) == pattern(2, len(memory))
        peer.sendall(b"y" if good else b"n")
    print("written by the initiator:", "verified" if good else "wrong")
    return good


def initiator(engine, memory, options):
    peer = connected(options.target)
    with peer, peer.makefile("rb") as stream:
        engine.accept(stream.read(int.from_bytes(stream.read(4), "little")))
        octets = len(memory)
        rate("read ", octets, [timed(engine.read, octets) for _ in range(3)])
        good = bytes(memory) == pattern(1, octets)
        print("read from the target:", "verified" if good else "wrong")
        for small in SMALL:
            print(f"read  {small:9} octets: {statistics.median(several(engine, small)) * 1e6:8.0f} us", flush=True)
        fill(memory, 2)
        rate("write", octets, [timed(engine.write, octets) for _ in range(3)])
        peer.sendall(b"?")
        return stream.read(1) == b"y" and good


def connected(address):
    """Connects to the target, which may not be there yet."""
    begun = time.monotonic()
    while True:
        try:
            return socket.create_connection((address, PORT))
        except ConnectionRefusedError:
            if time.monotonic() - begun > LONGEST:
                raise
            time.sleep(0.1)


def several(engine, octets):
    begun, times = time.monotonic(), []
    while len(times) < TIMES and time.monotonic() - begun < ENOUGH:
        times.append(timed(engine.read, octets))
    return times


def timed(call, *arguments):
    begun = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begun


def rate(what, octets, times):
    # The first one connects.
    print(f"{what} {octets:9} octets: {octets / min(times[1:]) / 1e9:8.2f} GB/s", flush=True)


def main():
    parser = argparse.ArgumentParser(
        usage=__doc__.split("\n\n")[1], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("engine", choices=["mooncake", "nixl"])
    parser.add_argument("role", choices=["target", "initiator"])
    parser.add_argument("address")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--device", default="", help="the device to use; else the engine chooses")
    parser.add_argument("--protocol", default="rdma", help="of Mooncake: rdma or tcp")
    options = parser.parse_args()
    if (options.target is None) != (options.role == "target"):
        parser.error("an initiator has a target, and a target none")
    engine = {"mooncake": Mooncake, "nixl": Nixl}[options.engine](options)
    memory = (ctypes.c_ubyte * engine.octets)()
    engine.register(memory)
    side = target if options.role == "target" else initiator
    sys.exit(not side(engine, memory, options))


if __name__ == "__main__":
    main()
