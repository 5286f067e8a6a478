/* Half round trips and bandwidth of two MPI ranks: `mpi_lat_bw SECONDS SIZE...` prints a line for each size, octets,
 * microseconds, GB/s. The receiver reads nothing but what MPI copies. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WINDOW = 64 };

static double latency(int rank, char *octets, int size, int trips) {
    double begin = 0;
    for (int trip = -trips / 10; trip < trips; trip++) {
        if (trip == 0)
            begin = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(octets, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(octets, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(octets, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(octets, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - begin) / trips / 2;
}

static double bandwidth(int rank, char *octets, int size, int windows) {
    MPI_Request requests[WINDOW];
    double begin = 0;
    for (int window = -windows / 10; window < windows; window++) {
        if (window == 0)
            begin = MPI_Wtime();
        for (int n = 0; n < WINDOW; n++) {
            if (rank == 0)
                MPI_Isend(octets, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &requests[n]);
            else
                MPI_Irecv(octets, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &requests[n]);
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(octets, 0, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(octets, 0, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    }
    return (double)size * WINDOW * windows / (MPI_Wtime() - begin);
}

/* How often for about so many seconds, as both ranks agree. */
static int repeats(double seconds, double one) {
    int count = (int)(seconds / one) + 10;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return count;
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    for (int arg = 2; arg < argc; arg++) {
        int size = atoi(argv[arg]);
        char *octets = calloc(1, size > 0 ? (size_t)size : 1);
        if (octets == NULL)
            MPI_Abort(MPI_COMM_WORLD, 1);
        double lat = latency(rank, octets, size, repeats(seconds / 2, latency(rank, octets, size, 200) * 2));
        double one = size * (double)WINDOW / bandwidth(rank, octets, size, 10);
        double bw = bandwidth(rank, octets, size, repeats(seconds / 2, one));
        if (rank == 0)
            printf("%d %.3f %.3f\n", size, lat * 1e6, bw / 1e9);
        free(octets);
    }
    MPI_Finalize();
    return 0;
}
