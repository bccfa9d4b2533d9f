/* Many processes of one container, and their sudden deaths: the limit holds, nothing is left, nobody hangs. */
#include "sandbox.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <time.h>

#define LIMIT (100 * MIB)
#define MOST_PEERS 256

/* What the processes of a test tell each other, beside what the shim keeps of them. */
struct board {
    atomic_uint changes; /* of held, by this process */
    atomic_ulong held;   /* bytes that the driver has given it and that it has not begun to give back */
    atomic_bool failed;
};

static struct board *boards;

static struct board *make_boards(void) {
    boards = mmap(NULL, MOST_PEERS * sizeof *boards, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(boards != MAP_FAILED, "memory");
    return boards;
}

static void tell(struct board *board, unsigned long held) {
    atomic_fetch_add(&board->changes, 1);
    atomic_store(&board->held, held);
    atomic_fetch_add(&board->changes, 1);
}

/* Bytes held by all at one moment; -1: no moment was found at which nobody was changing anything. */
static long long held_by_all(size_t peers) {
    unsigned before[MOST_PEERS];
    unsigned long long sum = 0;
    for (size_t i = 0; i < peers; i++) {
        before[i] = atomic_load(&boards[i].changes);
        sum += atomic_load(&boards[i].held);
    }
    for (size_t i = 0; i < peers; i++) {
        if (before[i] % 2 != 0 || atomic_load(&boards[i].changes) != before[i]) {
            return -1;
        }
    }
    return (long long)sum;
}

static void use_device_in_thread(void) {
    CUcontext context = NULL;
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuCtxSetCurrent, CUcontext)(context), CUDA_SUCCESS);
}

/* Before a request is refused, the dead are looked for: so each of these cleans up all the time. */
static void *keep_reaping(void *unused) {
    use_device_in_thread();
    for (;;) {
        CUdeviceptr address = 0;
        CHECK_EQUAL(allocate(&address, LIMIT + 1), CUDA_ERROR_OUT_OF_MEMORY);
        usleep(500);
    }
    return unused;
}

static void start_reapers(int count) {
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        CHECK_EQUAL(pthread_create(&thread, NULL, keep_reaping, NULL), 0);
    }
}

/* Holds up to 15 MiB in five pieces, each of them replaced again and again; never more, so that four peers and 20 MiB
   fit the limit at any time. */
static void allocate_what_fits(struct board *board) {
    CUdeviceptr held[5] = {0};
    start_reapers(2);
    for (size_t i = 0;; i = (i + 1) % 5) {
        if (held[i] != 0) {
            CHECK_EQUAL(deallocate(held[i]), CUDA_SUCCESS);
        }
        if (allocate(&held[i], (1 + i) * MIB) != CUDA_SUCCESS) {
            atomic_store(&board->failed, true);
            pause();
        }
    }
}

/* Takes what it can get, up to 60 MiB in one piece. */
static void allocate_what_there_is(struct board *board) {
    unsigned seed = (unsigned)getpid();
    start_reapers(1);
    for (;;) {
        CUdeviceptr address = 0;
        unsigned long bytes = (1 + (unsigned long)rand_r(&seed) % 60) * MIB;
        if (allocate(&address, bytes) == CUDA_SUCCESS) {
            tell(board, bytes);
            if (rand_r(&seed) % 4 == 0) {
                usleep(100);
            }
            tell(board, 0);
            CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
        }
    }
}

static pid_t start(size_t number, void (*body)(struct board *)) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0, "a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ready[0]);
        use_device(0);
        CHECK(write(ready[1], "", 1) == 1, "a pipe");
        close(ready[1]);
        body(&boards[number]);
        exit(EXIT_SUCCESS);
    }
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1, "a process");
    close(ready[0]);
    return pid;
}

static void stop(size_t number, pid_t pid) {
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid, "the peer");
    boards[number].held = 0;
    boards[number].changes = 0;
}

/* In a process that has never touched the limit: all of it can be had, so no byte of the dead's is left. */
static void check_that_nothing_is_left(void) {
    IN_CHILD({
        CUdeviceptr address = 0;
        use_device(0);
        CHECK_EQUAL(allocate(&address, LIMIT), CUDA_SUCCESS);
        CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    });
    CHECK_EQUAL(used_in_region(), 0);
}

static int kills(void) {
    const char *wanted = getenv("ALIQUOT_KILL_ROUNDS");
    return wanted == NULL ? 1000 : atoi(wanted);
}

/* Kills one of four peers at a time, at any instruction of theirs, and starts another in its place. */
static void kill_and_replace(void (*body)(struct board *), void (*check)(void)) {
    enum { PEERS = 4 };
    pid_t peers[PEERS];
    unsigned seed = (unsigned)getpid();
    printf("seed %u\n", seed);
    for (size_t i = 0; i < PEERS; i++) {
        peers[i] = start(i, body);
    }
    for (int killed = 0, count = kills(); killed < count; killed++) {
        size_t victim = (size_t)rand_r(&seed) % PEERS;
        struct timespec moment = {0, rand_r(&seed) % 1000000};
        nanosleep(&moment, NULL);
        check();
        stop(victim, peers[victim]);
        peers[victim] = start(victim, body);
    }
    for (size_t i = 0; i < PEERS; i++) {
        stop(i, peers[i]);
    }
}

static void check_that_nobody_was_refused(void) {
    for (size_t i = 0; i < MOST_PEERS; i++) {
        CHECK(!atomic_load(&boards[i].failed), "a request that fitted was refused");
    }
}

/* Fits beside whatever the others hold. */
static void take_20_MiB(struct board *board) {
    start_reapers(2);
    for (;;) {
        CUdeviceptr address = 0;
        if (allocate(&address, 20 * MIB) != CUDA_SUCCESS) {
            atomic_store(&board->failed, true);
            pause();
        }
        CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    }
}

TEST(peers_killed_while_all_reap_from_threads_leave_nothing_and_nobody_is_refused_who_fits) {
    sandbox(LIMIT, 0);
    make_boards();
    pid_t survivor = start(4, take_20_MiB);
    kill_and_replace(allocate_what_fits, check_that_nobody_was_refused);
    CHECK_EQUAL(waitpid(survivor, NULL, WNOHANG), 0);
    stop(4, survivor);
    check_that_nobody_was_refused();
    check_that_nothing_is_left();
}

static int moments;

static void check_that_the_limit_holds(void) {
    for (int tries = 0; tries < 20; tries++) {
        long long held = held_by_all(4);
        moments += held > 0;
        CHECK(held <= (long long)LIMIT, "%lld bytes are held under a limit of %zu", held, LIMIT);
    }
}

TEST(peers_killed_while_they_compete_never_hold_more_than_the_limit) {
    sandbox(LIMIT, 0);
    make_boards();
    kill_and_replace(allocate_what_there_is, check_that_the_limit_holds);
    printf("looked at %d moments\n", moments);
    CHECK(moments > 0, "a moment");
    check_that_nothing_is_left();
}

static pthread_barrier_t *barrier;

static void wait_for_all(void) {
    pthread_barrier_wait(barrier);
}

static void take_a_share_of_256(struct board *board) {
    CUdeviceptr address = 0;
    for (int round = 0; round < 10; round++) {
        wait_for_all();
        if (allocate(&address, MIB) != CUDA_SUCCESS) { /* all of it fits, so to the last one */
            atomic_store(&board->failed, true);
        }
        wait_for_all(); /* here all 256 MiB are held */
        wait_for_all();
        deallocate(address);
    }
}

TEST(two_hundred_and_fifty_six_processes_share_one_limit_to_the_last_byte) {
    static pid_t peers[MOST_PEERS];
    pthread_barrierattr_t shared;
    sandbox(MOST_PEERS * MIB, 0);
    make_boards();
    barrier = mmap(NULL, sizeof *barrier, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(barrier != MAP_FAILED && pthread_barrierattr_init(&shared) == 0, "memory");
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &shared, MOST_PEERS + 1);
    for (size_t i = 0; i < MOST_PEERS; i++) {
        peers[i] = start(i, take_a_share_of_256);
    }
    use_device(0);
    for (int round = 0; round < 10; round++) {
        CUdeviceptr address = 0;
        wait_for_all();
        wait_for_all();
        check_that_nobody_was_refused();
        CHECK_EQUAL(used_in_region(), MOST_PEERS * MIB);
        CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
        wait_for_all();
    }
    for (size_t i = 0; i < MOST_PEERS; i++) {
        int status = 0;
        CHECK(waitpid(peers[i], &status, 0) == peers[i] && status == 0, "peer %zu", i);
    }
    CUdeviceptr address = 0;
    CHECK_EQUAL(allocate(&address, MOST_PEERS * MIB), CUDA_SUCCESS);
}
