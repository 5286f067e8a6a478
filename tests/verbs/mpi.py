"""MPI test program of mpi4py: collectives, a ring, one-sided operations, each verified."""

import array
import socket

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
following, preceding = (rank + 1) % ranks, (rank - 1) % ranks


def numbers(count, of):
    """Different for each rank, and at each place."""
    return array.array("i", (of * 1_000_003 + place for place in range(count)))


def zeroes(count):
    return array.array("i", bytes(4 * count))


def check(what, good):
    wrong = world.gather(None if good else rank)
    if rank == 0 and any(name is not None for name in wrong):
        print(f"{what}: wrong at ranks {[name for name in wrong if name is not None]}", flush=True)
        world.Abort(1)


def collectives():
    for count in 1, 1000, 1 << 20:
        total = zeroes(count)
        world.Allreduce(array.array("i", [rank + 1]) * count, total)
        check(f"allreduce of {count}", set(total) == {ranks * (ranks + 1) // 2})
    for count in 1, 4096, 1 << 16:
        received = zeroes(ranks * count)
        world.Alltoall(numbers(ranks * count, rank), received)
        parts = (numbers(ranks * count, of)[rank * count : (rank + 1) * count] for of in range(ranks))
        check(f"alltoall of {count}", received == sum(parts, array.array("i")))


def ring():
    for count in 2, 1 << 14, 1 << 20:
        received = zeroes(count)
        world.Sendrecv(numbers(count, rank), following, 0, received, preceding, 0)
        check(f"ring of {count}", received == numbers(count, preceding))


def one_sided():
    count = 4096
    memory = zeroes(ranks * count + 2)
    window = MPI.Win.Create(memory, 4, comm=world)
    # It must live until the operations are complete.
    own = numbers(count, rank)
    window.Fence()
    for target in range(ranks):
        window.Put(own, target, rank * count)
    window.Fence()
    written = sum((numbers(count, of) for of in range(ranks)), array.array("i"))
    check("put", memory[: ranks * count] == written)
    read = zeroes(ranks * count)
    window.Fence()
    window.Get(read, following)
    window.Fence()
    check("get", read == written)
    one, before = array.array("i", [1]), zeroes(1)
    window.Fence()
    for _ in range(50):
        window.Accumulate(one, 0, ranks * count)
    window.Fence()
    window.Lock(0, MPI.LOCK_SHARED)
    window.Fetch_and_op(one, before, 0, ranks * count + 1)
    window.Unlock(0)
    check("fetch_and_op", sorted(world.allgather(before[0])) == list(range(ranks)))
    check("accumulate", rank != 0 or memory[-2:].tolist() == [50 * ranks, ranks])
    window.Free()


hosts = len(set(world.allgather(socket.gethostname())))
collectives()
ring()
one_sided()
if rank == 0:
    print(f"{ranks} ranks on {hosts} hosts: collectives, ring, one-sided: verified", flush=True)
