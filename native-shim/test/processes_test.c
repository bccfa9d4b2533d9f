/* Tests with many processes of one container that are killed at any time: the others never exceed the limit and never
   hang, and no charge of a killed process stays. */
#include "sandbox.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define LIMIT (100 * MIB)
#define MAX_PEERS 256

/* The test's own record of a process, independent of the shim's. `changes` is odd while the process updates `held`. */
struct record {
    atomic_uint changes;
    atomic_ulong held; /* bytes that the process has allocated and has not begun to free */
    atomic_bool failed;
};

static struct record *records;

static struct record *make_records(void) {
    records = mmap(NULL, MAX_PEERS * sizeof *records, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(records != MAP_FAILED, "memory");
    return records;
}

static void publish(struct record *record, unsigned long held) {
    atomic_fetch_add(&record->changes, 1);
    atomic_store(&record->held, held);
    atomic_fetch_add(&record->changes, 1);
}

/* A consistent sum of the bytes that all processes hold; -1 if a process changed its record during the sum. */
static long long sum_of_held(size_t peers) {
    unsigned before[MAX_PEERS];
    unsigned long long sum = 0;
    for (size_t i = 0; i < peers; i++) {
        before[i] = atomic_load(&records[i].changes);
        sum += atomic_load(&records[i].held);
    }
    for (size_t i = 0; i < peers; i++) {
        if (before[i] % 2 != 0 || atomic_load(&records[i].changes) != before[i]) {
            return -1;
        }
    }
    return (long long)sum;
}

/* The shim reaps dead processes before it refuses a request. So this thread makes it reap all the time. */
static void *keep_reaping(void *unused) {
    use_device(0);
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

/* Holds at most 15 MiB in five allocations and replaces them in turn. Four such processes and 20 MiB fit the limit at
   any time. */
static void allocate_what_fits(struct record *record) {
    CUdeviceptr held[5] = {0};
    start_reapers(2);
    for (size_t i = 0;; i = (i + 1) % 5) {
        if (held[i] != 0) {
            CHECK_EQUAL(deallocate(held[i]), CUDA_SUCCESS);
        }
        if (allocate(&held[i], (1 + i) * MIB) != CUDA_SUCCESS) {
            atomic_store(&record->failed, true);
            pause();
        }
    }
}

/* Allocates up to 60 MiB at a time if they fit. */
static void allocate_random_sizes(struct record *record) {
    unsigned seed = (unsigned)getpid();
    start_reapers(1);
    for (;;) {
        CUdeviceptr address = 0;
        unsigned long bytes = (1 + (unsigned long)rand_r(&seed) % 60) * MIB;
        if (allocate(&address, bytes) == CUDA_SUCCESS) {
            publish(record, bytes);
            if (rand_r(&seed) % 4 == 0) {
                usleep(100);
            }
            publish(record, 0);
            CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
        }
    }
}

static pid_t start(size_t number, void (*body)(struct record *)) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ready[0]);
        use_device(0);
        CHECK(write(ready[1], "", 1) == 1, "pipe");
        close(ready[1]);
        body(&records[number]);
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
    records[number].held = 0;
    records[number].changes = 0;
}

/* A new process can allocate the whole limit, so no charge of a dead process is left. */
static void check_that_no_charge_is_left(void) {
    IN_CHILD({
        CUdeviceptr address = 0;
        use_device(0);
        CHECK_EQUAL(allocate(&address, LIMIT), CUDA_SUCCESS);
        CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    });
    CHECK_EQUAL(used_in_region(), 0);
}

static int kill_rounds(void) {
    const char *value = getenv("ALIQUOT_KILL_ROUNDS");
    return value == NULL ? 300 : atoi(value);
}

/* Kills one of four processes at a random time, replaces it by a new one, and repeats. */
static void kill_and_replace(void (*body)(struct record *), void (*check)(void)) {
    enum { PEERS = 4 };
    pid_t peers[PEERS];
    unsigned seed = (unsigned)getpid();
    printf("seed %u\n", seed);
    for (size_t i = 0; i < PEERS; i++) {
        peers[i] = start(i, body);
    }
    for (int killed = 0, count = kill_rounds(); killed < count; killed++) {
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

static void check_that_no_process_was_refused(void) {
    for (size_t i = 0; i < MAX_PEERS; i++) {
        CHECK(!atomic_load(&records[i].failed), "a request that fits was refused");
    }
}

/* Allocates 20 MiB, which fit beside the 60 MiB of the other processes. */
static void allocate_20_MiB(struct record *record) {
    start_reapers(2);
    for (;;) {
        CUdeviceptr address = 0;
        if (allocate(&address, 20 * MIB) != CUDA_SUCCESS) {
            atomic_store(&record->failed, true);
            pause();
        }
        CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    }
}

TEST(processes_killed_while_others_reap_leave_no_charge_and_no_request_that_fits_is_refused) {
    sandbox(LIMIT, 0);
    make_records();
    pid_t survivor = start(4, allocate_20_MiB);
    kill_and_replace(allocate_what_fits, check_that_no_process_was_refused);
    CHECK_EQUAL(waitpid(survivor, NULL, WNOHANG), 0);
    stop(4, survivor);
    check_that_no_process_was_refused();
    check_that_no_charge_is_left();
}

static int samples;

static void check_that_the_limit_holds(void) {
    for (int tries = 0; tries < 20; tries++) {
        long long held = sum_of_held(4);
        samples += held > 0;
        CHECK(held <= (long long)LIMIT, "%lld bytes are held under a limit of %zu", held, LIMIT);
    }
}

TEST(processes_killed_while_they_compete_never_exceed_the_limit) {
    sandbox(LIMIT, 0);
    make_records();
    kill_and_replace(allocate_random_sizes, check_that_the_limit_holds);
    printf("%d samples\n", samples);
    CHECK(samples > 0, "at least one consistent sample");
    check_that_no_charge_is_left();
}

static pthread_barrier_t *barrier;

static void wait_for_all(void) {
    pthread_barrier_wait(barrier);
}

static void allocate_one_of_256(struct record *record) {
    CUdeviceptr address = 0;
    for (int round = 0; round < 10; round++) {
        wait_for_all();
        if (allocate(&address, MIB) != CUDA_SUCCESS) { /* the limit has room for all of them */
            atomic_store(&record->failed, true);
        }
        wait_for_all(); /* here all 256 MiB are held */
        wait_for_all();
        deallocate(address);
    }
}

TEST(two_hundred_and_fifty_six_processes_share_one_limit_to_the_last_byte) {
    static pid_t peers[MAX_PEERS];
    pthread_barrierattr_t shared;
    sandbox(MAX_PEERS * MIB, 0);
    make_records();
    barrier = mmap(NULL, sizeof *barrier, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(barrier != MAP_FAILED && pthread_barrierattr_init(&shared) == 0, "memory");
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &shared, MAX_PEERS + 1);
    for (size_t i = 0; i < MAX_PEERS; i++) {
        peers[i] = start(i, allocate_one_of_256);
    }
    use_device(0);
    for (int round = 0; round < 10; round++) {
        CUdeviceptr address = 0;
        wait_for_all();
        wait_for_all();
        check_that_no_process_was_refused();
        CHECK_EQUAL(used_in_region(), MAX_PEERS * MIB);
        CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
        wait_for_all();
    }
    for (size_t i = 0; i < MAX_PEERS; i++) {
        int status = 0;
        CHECK(waitpid(peers[i], &status, 0) == peers[i] && status == 0, "peer %zu", i);
    }
    CUdeviceptr address = 0;
    CHECK_EQUAL(allocate(&address, MAX_PEERS * MIB), CUDA_SUCCESS);
}

static bool write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return written;
}

/* A mount namespace, as root or in a user namespace of its own. */
static bool enter_mount_namespace(void) {
    char map[64];
    if (unshare(CLONE_NEWNS) != 0) {
        snprintf(map, sizeof map, "0 %u 1", (unsigned)getuid());
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !write_text("/proc/self/uid_map", map)) {
            return false;
        }
    }
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* The region lies on an overlay file system, as in the writable layer of a container. */
static void sandbox_on_overlay(void) {
    static const char *const folders[] = {"/mnt/lower", "/mnt/upper", "/mnt/work", "/mnt/merged"};
    sandbox(LIMIT, 0);
    if (!enter_mount_namespace() || mount("tmpfs", "/mnt", "tmpfs", 0, NULL) != 0) {
        SKIP("no file system can be mounted here");
    }
    for (size_t i = 0; i < 4; i++) {
        CHECK(mkdir(folders[i], 0777) == 0, "%s", folders[i]);
    }
    if (mount("overlay", "/mnt/merged", "overlay", 0, "lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work") !=
        0) {
        SKIP("no overlay can be mounted here");
    }
    unlink(sandbox_region);
    snprintf(sandbox_region, sizeof sandbox_region, "/mnt/merged/region");
    setenv("ALIQUOT_REGION", sandbox_region, 1);
    write_file(sandbox_region, "", 0);
}

static void check_that_60_MiB_are(CUresult expected) {
    IN_CHILD({
        CUdeviceptr address = 0;
        use_device(0);
        CHECK_EQUAL(allocate(&address, 60 * MIB), expected);
    });
}

static void hold_60_MiB(struct record *record) {
    CUdeviceptr address = 0;
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_SUCCESS);
    publish(record, 60 * MIB);
    pause();
}

/* What daemons do. Then it goes on allocating. */
static void hold_60_MiB_and_close_all_descriptors(struct record *record) {
    CUdeviceptr address = 0;
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_SUCCESS);
    for (int fd = 3; fd < 1100; fd++) {
        close(fd);
    }
    CHECK_EQUAL(allocate(&address, LIMIT), CUDA_ERROR_OUT_OF_MEMORY);
    publish(record, 60 * MIB);
    pause();
}

static void check_that_two_processes_share_the_limit(void (*first)(struct record *)) {
    make_records();
    pid_t holder = start(0, first);
    while (atomic_load(&records[0].held) == 0) {
        CHECK(waitpid(holder, NULL, WNOHANG) == 0, "the holder lives");
        usleep(1000);
    }
    check_that_60_MiB_are(CUDA_ERROR_OUT_OF_MEMORY);
    stop(0, holder);
    check_that_60_MiB_are(CUDA_SUCCESS);
}

TEST(processes_share_one_limit_if_the_region_is_on_an_overlay) {
    sandbox_on_overlay();
    check_that_two_processes_share_the_limit(hold_60_MiB);
}

TEST(a_process_on_an_overlay_that_closes_all_descriptors_keeps_its_charge) {
    sandbox_on_overlay();
    check_that_two_processes_share_the_limit(hold_60_MiB_and_close_all_descriptors);
}

TEST(a_forked_child_and_a_new_program_do_not_keep_the_slot_of_a_dead_process_on_an_overlay) {
    int ready[2];
    char byte;
    sandbox_on_overlay();
    CHECK(pipe(ready) == 0, "pipe");
    pid_t holder = fork();
    if (holder == 0) {
        CUdeviceptr address = 0;
        use_device(0);
        CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_SUCCESS);
        if (fork() == 0) {
            if (fork() == 0) {
                execlp("sleep", "sleep", "60", NULL);
            }
            CHECK(write(ready[1], "", 1) == 1, "pipe");
            pause();
        }
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1, "a grandchild");
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    check_that_60_MiB_are(CUDA_SUCCESS);
}

/* ---- forks ---- */

#if !defined __SANITIZE_THREAD__ && !defined __SANITIZE_ADDRESS__ /* their runtimes touch memory at a fork */
/* Pages that a forked child writes or reads for the first time before fork() returns there. */
static long faults_of_a_fork(void) {
    long faults = 0;
    int result[2];
    CHECK(pipe(result) == 0, "pipe");
    if (fork() == 0) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        CHECK(write(result[1], &usage.ru_minflt, sizeof usage.ru_minflt) > 0, "pipe");
        _exit(EXIT_SUCCESS);
    }
    CHECK(read(result[0], &faults, sizeof faults) == sizeof faults, "the child's count");
    return faults;
}

TEST(a_fork_of_a_process_that_has_launched_nothing_writes_few_pages) {
    sandbox(LIMIT, 0);
    long before = faults_of_a_fork();
    use_device(0);
    long after = faults_of_a_fork();
    printf("%ld and %ld pages\n", before, after);
    CHECK(after - before < 200, "%ld pages more with the shim in use",
          after - before); /* 285 with all costs and meters */
}
#endif

static atomic_bool refused;

static void *request_too_much(void *unused) {
    CUdeviceptr address = 0;
    use_device(0);
    CHECK_EQUAL(allocate(&address, LIMIT), CUDA_ERROR_OUT_OF_MEMORY);
    atomic_store(&refused, true);
    return unused;
}

TEST(a_fork_does_not_wait_for_a_refusal) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ALIQUOT_REGION_DECISION_LOCK, .l_len = 1};
    CUdeviceptr address = 0;
    pthread_t thread;
    sandbox(LIMIT, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, MIB), CUDA_SUCCESS);
    int fd = open(sandbox_region, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0, "a stopped process holds the lock of decisions");
    CHECK_EQUAL(pthread_create(&thread, NULL, request_too_much, NULL), 0);
    usleep(100000); /* it waits for a second */
    IN_CHILD(_exit(EXIT_SUCCESS));
    CHECK(!atomic_load(&refused), "the fork came first");
    pthread_join(thread, NULL);
    CHECK(atomic_load(&refused), "refused without the lock");
}
