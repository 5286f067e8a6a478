/* MPI test program: point to point, collective and one-sided operations, each verified: a ring, allreduce,
 * alltoall, put, get and accumulate. With the argument "two-sided" it omits one-sided operations. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void alltoall(int *out, int *in)
{
    for (int count = 1; count * ranks <= LONGEST; count *= 8) {
        for (int i = 0; i < count * ranks; i++)
            out[i] = rank * 1000003 + i;
        MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
        for (int i = 0; i < count * ranks; i++)
            check(in[i] == i / count * 1000003 + rank * count + i % count, "alltoall");
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
    int one = 1, before = exposed[0];
    MPI_Win_fence(0, window);
    for (int target = 0; target < ranks; target++)
        MPI_Accumulate(&one, 1, MPI_INT, target, 0, 1, MPI_INT, MPI_SUM, window);
    MPI_Win_fence(0, window);
    check(exposed[0] == before + ranks, "accumulate");
    MPI_Win_free(&window);
}

/* How many different hosts the ranks are on. */
static int hosts(void)
{
    char own[MPI_MAX_PROCESSOR_NAME] = {0};
    char *all = malloc(ranks * sizeof own);
    int length, count = 0;
    check(all != NULL, "malloc");
    MPI_Get_processor_name(own, &length);
    MPI_Allgather(own, sizeof own, MPI_CHAR, all, sizeof own, MPI_CHAR, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++) {
        int first = 0;
        while (strcmp(all + first * sizeof own, all + i * sizeof own) != 0)
            first++;
        count += first == i;
    }
    free(all);
    return count;
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
    alltoall(out, in);
    int is_two_sided = argc > 1 && strcmp(argv[1], "two-sided") == 0;
    if (!is_two_sided)
        one_sided(out, in);
    free(out);
    free(in);
    int different = hosts();
    if (rank == 0)
        printf("%d ranks on %d hosts: ring, collectives%s: verified\n", ranks, different,
               is_two_sided ? "" : ", one-sided");
    MPI_Finalize();
    return 0;
}
