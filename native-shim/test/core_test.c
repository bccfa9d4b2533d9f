/* Tests of the sources that call no driver. The program contains them, so that it can be built with the sanitizers,
   which do not support a preloaded library. */
#include "check.h"
#include "limits/account.h"
#include "os/os.h"
#include "os/shared.h"
#include "os/table.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)

static struct aliquot_table table;

TEST(the_table_agrees_with_a_plain_array) {
    enum { ADDRESSES = 20000, STEPS = 400000 };
    static uint64_t bytes_of[ADDRESSES]; /* 0: not held */
    unsigned seed = (unsigned)getpid();
    printf("seed %u\n", seed);
    for (int step = 0; step < STEPS; step++) {
        /* Phases of more insertions and of more removals make shards grow, shrink and wrap around. */
        bool put = rand_r(&seed) % 8 < (step / 40000 % 2 == 0 ? 6 : 2);
        uint64_t i = (uint64_t)rand_r(&seed) % ADDRESSES;
        uint64_t address = (i + 1) * 512;
        struct aliquot_allocation allocation = {.bytes = (uint64_t)step + 1, .owner = &bytes_of[i % 2]}, found;
        bool replaced = false;
        if (put) {
            CHECK(aliquot_table_put(&table, address, &allocation, &found, &replaced), "memory for the table");
            CHECK_EQUAL(replaced, bytes_of[i] != 0);
            CHECK(!replaced || found.bytes == bytes_of[i], "the replaced entry");
            bytes_of[i] = allocation.bytes;
        } else {
            CHECK_EQUAL(aliquot_table_remove(&table, address, &found), bytes_of[i] != 0);
            CHECK(bytes_of[i] == 0 || found.bytes == bytes_of[i], "the entry that was put");
            bytes_of[i] = 0;
        }
    }
    aliquot_table_reset(&table);
    struct aliquot_allocation found;
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        CHECK(!aliquot_table_remove(&table, (i + 1) * 512, &found), "an empty table");
    }
}

static uint64_t released_bytes;

static void count_released(const struct aliquot_allocation *allocation) {
    released_bytes += allocation->bytes;
}

TEST(removing_a_context_removes_exactly_its_allocations) {
    enum { ADDRESSES = 30000 };
    static char contexts[3];
    bool replaced;
    struct aliquot_allocation old;
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        struct aliquot_allocation allocation = {.bytes = 1, .owner = &contexts[i % 3]};
        CHECK(aliquot_table_put(&table, (i + 1) * 4096, &allocation, &old, &replaced), "memory for the table");
    }
    aliquot_table_remove_owner(&table, &contexts[1], count_released);
    CHECK_EQUAL(released_bytes, ADDRESSES / 3);
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        CHECK_EQUAL(aliquot_table_remove(&table, (i + 1) * 4096, &old), i % 3 != 1);
    }
}

static void open_account(const char *path) {
    char error[ALIQUOT_SHARED_ERROR];
    struct aliquot_limits limits = {
        .count = 1,
        .vgpu = {{.uuid = "\x8f\x6e\x8f\x0c\x01\x01\x4a\x5b\x9c\x3d\x01\x01\x01\x01\x01", .memory = 100 * MIB}}};
    CHECK(aliquot_shared_open(path, NULL, error), "%s", error);
    CHECK(aliquot_account_set_limits(&limits, error), "%s", error);
}

static void *reserve_and_release(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int i = 0; i < 3000; i++) {
        uint64_t bytes = (1 + (uint64_t)rand_r(&seed) % 60) * MIB;
        if (aliquot_account_reserve(0, bytes, false)) {
            struct aliquot_allocation allocation = {.bytes = bytes}, old;
            bool replaced;
            uint64_t address = (uint64_t)(uintptr_t)argument << 32 | ((uint64_t)i + 1);
            CHECK(aliquot_table_put(&table, address, &allocation, &old, &replaced) && !replaced, "a new entry");
            CHECK(aliquot_account_used(0) <= 4 * 160 * MIB, "decided and undecided requests");
            CHECK(aliquot_table_remove(&table, address, &old), "the entry that was put");
            aliquot_account_release(0, old.bytes);
        }
    }
    return NULL;
}

TEST(threads_share_the_account_and_the_table_without_a_race) {
    pthread_t threads[4];
    open_account(NULL);
    for (size_t i = 0; i < 4; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, reserve_and_release, (void *)(i + 1)), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_EQUAL(aliquot_account_used(0), 0);
    CHECK(aliquot_account_reserve(0, 100 * MIB, false), "the whole limit");
}

static atomic_bool churning = true;
static atomic_int churned;

/* Loads a library that the process does not have, with those that it needs, and unloads it, again and again. */
static void *churn(void *library) {
    while (atomic_load(&churning)) {
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        atomic_fetch_add(&churned, handle != NULL);
        if (handle != NULL) {
            dlclose(handle);
        }
    }
    return NULL;
}

TEST(functions_of_libc_are_found_while_other_threads_load_and_unload_libraries) {
    static char *const libraries[] = {"libBrokenLocale.so.1", "libthread_db.so.1", "libnss_hesiod.so.2"};
    pthread_t threads[3];
    void *expected = aliquot_os_find_symbol("strtok");
    CHECK(expected != NULL, "strtok");
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, churn, libraries[i]), 0);
    }
    for (int i = 0; i < 20000 || atomic_load(&churned) < 200; i++) {
        CHECK(aliquot_os_find_symbol("strtok") == expected, "strtok");
        CHECK(aliquot_os_find_symbol("no_function_of_any_library") == NULL, "searches all libraries");
    }
    atomic_store(&churning, false);
    for (size_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Starts a process that opens the account, does its work and waits until the pipe is closed; returns after the work. */
static pid_t start_peer(const char *path, const int stop[2], void (*work)(void)) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0, "pipe");
    pid_t peer = fork();
    if (peer == 0) {
        close(stop[1]);
        open_account(path);
        work();
        CHECK(write(ready[1], "", 1) == 1 && read(stop[0], &byte, 1) == 0, "pipe");
        _exit(EXIT_SUCCESS);
    }
    CHECK(read(ready[0], &byte, 1) == 1, "the peer's work");
    close(ready[0]);
    close(ready[1]);
    return peer;
}

static void use_all_fields(void) {
    CHECK(aliquot_account_reserve(0, MIB, false), "a request within the limit");
    struct aliquot_charge *charge = &aliquot_shared_region()->charge[0][aliquot_shared_slot()];
    charge->gpu_time = charge->peak = charge->context_bytes = charge->history[3] = 7;
    aliquot_shared_region()->device[0].gpu_time += 7;
}

TEST(a_slot_records_its_owner_and_the_figures_of_a_dead_owner_are_cleared) {
    static const struct aliquot_charge nothing;
    char path[] = "/tmp/aliquot-core-XXXXXX";
    uint16_t living[ALIQUOT_REGION_PROCESSES];
    int stop[2];
    CHECK(mkstemp(path) >= 0 && pipe(stop) == 0, "%s", path);
    pid_t first = start_peer(path, stop, use_all_fields);
    pid_t second = start_peer(path, stop, use_all_fields);
    open_account(path);
    struct aliquot_region *region = aliquot_shared_region();
    CHECK_EQUAL(aliquot_shared_live_slots(living), 2);
    CHECK(living[0] == 0 && living[1] == 1, "slots 0 and 1");
    CHECK_EQUAL(region->process[0].pid, first);
    CHECK_EQUAL(region->process[1].pid, second);
    int64_t age = (int64_t)time(NULL) * 1000000 - (int64_t)region->process[1].started;
    CHECK(age > -2000000 && age < 60000000, "%lld us", (long long)age);

    kill(first, SIGKILL);
    waitpid(first, NULL, 0);
    CHECK_EQUAL(aliquot_shared_live_slots(living), 1);
    CHECK_EQUAL(living[0], 1);
    aliquot_shared_reap();
    CHECK(memcmp(&region->charge[0][0], &nothing, sizeof nothing) == 0, "the dead owner's figures are cleared");
    CHECK_EQUAL(region->charge[0][1].peak, 7);
    CHECK_EQUAL(region->device[0].gpu_time, 14); /* the container's total keeps the dead process's GPU time */

    region->charge[0][0].gpu_time = 8; /* as if no process had reaped the slot */
    CHECK_EQUAL(aliquot_shared_slot(), 0);
    CHECK(memcmp(&region->charge[0][0], &nothing, sizeof nothing) == 0, "a new owner starts with zeros");
    CHECK_EQUAL(region->process[0].pid, getpid());
    CHECK_EQUAL(aliquot_shared_live_slots(living), 2); /* the second process and this one */
    close(stop[1]);
    waitpid(second, NULL, 0);
    CHECK_EQUAL(aliquot_shared_live_slots(living), 1);
    unlink(path);
}

TEST(without_a_region_file_a_process_sees_only_itself) {
    uint16_t living[ALIQUOT_REGION_PROCESSES];
    open_account(NULL);
    CHECK_EQUAL(aliquot_shared_live_slots(living), 0);
    CHECK(aliquot_account_reserve(0, 1, false), "a request within the limit");
    CHECK_EQUAL(aliquot_shared_live_slots(living), 1);
    CHECK_EQUAL(aliquot_shared_region()->process[living[0]].pid, getpid());
}

TEST(processes_beyond_the_last_slot_are_refused_and_not_counted) {
    enum { PEERS = ALIQUOT_REGION_PROCESSES };
    char path[] = "/tmp/aliquot-core-XXXXXX";
    CHECK(mkstemp(path) >= 0, "%s", path);
    int ready[2], stop[2];
    CHECK(pipe(ready) == 0 && pipe(stop) == 0, "pipe");
    for (int i = 0; i < PEERS; i++) {
        if (fork() == 0) {
            char byte;
            close(stop[1]);
            open_account(path);
            byte = aliquot_account_reserve(0, 1, false) ? 'y' : 'n';
            CHECK(write(ready[1], &byte, 1) == 1 && read(stop[0], &byte, 1) == 0, "pipe");
            _exit(EXIT_SUCCESS);
        }
    }
    for (int i = 0; i < PEERS; i++) {
        char byte;
        CHECK(read(ready[0], &byte, 1) == 1 && byte == 'y', "peer %d", i);
    }
    open_account(path);
    CHECK_EQUAL(aliquot_account_used(0), PEERS);
    CHECK_EQUAL(aliquot_shared_region()->header.process_refused_ms, 0);
    char text[512] = "";
    int printed[2], errors = dup(STDERR_FILENO);
    CHECK(pipe(printed) == 0 && dup2(printed[1], STDERR_FILENO) >= 0, "pipe");
    bool first = aliquot_account_reserve(0, 1, false), second = aliquot_account_reserve(0, 1, false);
    dup2(errors, STDERR_FILENO);
    close(printed[1]);
    CHECK(!first && !second, "no slot is free");
    CHECK(read(printed[0], text, sizeof text - 1) > 0 &&
              strstr(text, "aliquot: 512 processes of this container") == text,
          "printed: %s", text);
    CHECK(strchr(text, '\n') == text + strlen(text) - 1, "once: %s", text);
    int64_t age = aliquot_os_clock() / 1000000 - (int64_t)aliquot_shared_region()->header.process_refused_ms;
    CHECK(age >= 0 && age < 60000, "the agent sees it: %lld ms ago", (long long)age);
    close(stop[1]);
    while (wait(NULL) > 0) {
    }
    CHECK(aliquot_account_reserve(0, 100 * MIB, false), "the whole limit after the peers have ended");
    unlink(path);
}

static void check_clocks(int64_t before, int64_t offset) {
    struct timespec own;
    clock_gettime(CLOCK_MONOTONIC, &own);
    aliquot_os_find_clock_offset();
    int64_t start = aliquot_os_clock(), ahead = own.tv_sec * INT64_C(1000000000) + own.tv_nsec - start;
    CHECK(ahead <= offset && ahead > offset - 1000000000, "%lld ns ahead", (long long)ahead);
    CHECK(start >= before && start - before < 30000000000, "%lld ns later", (long long)(start - before));
    CHECK(llabs(start - aliquot_os_clock_coarse()) < 1000000000, "the coarse clock");
    aliquot_os_sleep(20000000);
    int64_t slept = aliquot_os_clock() - start;
    CHECK(slept >= 20000000 && slept < 30000000000, "slept for %lld ns", (long long)slept);
}

TEST(in_a_time_namespace_the_clock_is_the_nodes) {
    static const int offsets[] = {1000000, -1};
    for (int i = 0; i < 2; i++) {
        int64_t before = aliquot_os_clock();
        int status = 0;
        check_time_namespace(offsets[i]);
        check_clocks(before, 0); /* the namespace is of later children */
        pid_t child = fork();
        if (child == 0) {
            check_clocks(before, offsets[i] * INT64_C(1000000000));
            exit(EXIT_SUCCESS);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0, "%d s ahead: status %d", offsets[i], status);
    }
}
