/* MPI test program: point to point, collective and one-sided operations, each verified: a ring, allreduce, put
 * and get. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LONGEST (1 << 18)

static int rank, ranks;

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d: %s: wrong\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void ring(int *out, int *in)
{
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    for (int count = 1; count <= LONGEST; count *= 8) {
        for (int i = 0; i < count; i++)
            out[i] = rank * 1000 + i;
        MPI_Sendrecv(out, count, MPI_INT, next, count, in, count, MPI_INT, last, count,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++)
            check(in[i] == last * 1000 + i, "ring");
    }
}

static void allreduce(int *out, int *in)
{
    for (int count = 1; count <= LONGEST; count *= 8) {
        for (int i = 0; i < count; i++)
            out[i] = rank + i % 7;
        MPI_Allreduce(out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++)
            check(in[i] == ranks * (ranks - 1) / 2 + ranks * (i % 7), "allreduce");
    }
}

static void one_sided(int *out, int *in)
{
    int next = (rank + 1) % ranks, count = 4096;
    int *exposed;
    MPI_Win window;
    MPI_Win_allocate(2 * count * sizeof *exposed, sizeof *exposed, MPI_INFO_NULL, MPI_COMM_WORLD,
                     &exposed, &window);
    for (int i = 0; i < count; i++) {
        out[i] = rank * 5000 + i;
        exposed[count + i] = -rank - i;
    }
    MPI_Win_fence(0, window);
    MPI_Put(out, count, MPI_INT, next, 0, count, MPI_INT, window);
    MPI_Get(in, count, MPI_INT, next, count, count, MPI_INT, window);
    MPI_Win_fence(0, window);
    int last = (rank + ranks - 1) % ranks;
    for (int i = 0; i < count; i++) {
        check(exposed[i] == last * 5000 + i, "put");
        check(in[i] == -next - i, "get");
    }
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int *out = malloc(LONGEST * sizeof *out), *in = malloc(LONGEST * sizeof *in);
    check(out && in, "malloc");
    ring(out, in);
    allreduce(out, in);
    one_sided(out, in);
    free(out);
    free(in);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks: ring, allreduce, one-sided: verified\n", ranks);
    MPI_Finalize();
    return 0;
}
