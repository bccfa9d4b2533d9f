/* The library's parts without a driver, linked directly: also built with the sanitizers, which a preload can't be. */
#include "account.h"
#include "check.h"
#include "shared.h"
#include "table.h"

#include <pthread.h>
#include <stdbool.h>

#define MIB (UINT64_C(1) << 20)

TEST(the_table_remembers_what_a_plain_array_does) {
    enum { ADDRESSES = 20000, STEPS = 400000 };
    static uint64_t bytes_of[ADDRESSES]; /* 0: not held */
    unsigned seed = (unsigned)getpid();
    printf("seed %u\n", seed);
    for (int step = 0; step < STEPS; step++) {
        /* Waves, so that shards grow, shrink and wrap around. */
        bool put = rand_r(&seed) % 8 < (step / 40000 % 2 == 0 ? 6 : 2);
        uint64_t i = (uint64_t)rand_r(&seed) % ADDRESSES;
        uint64_t address = (i + 1) * 512;
        struct aliquot_holding holding = {.bytes = (uint64_t)step + 1, .context = &bytes_of[i % 2]}, found;
        bool replaced = false;
        if (put) {
            CHECK(aliquot_table_put(address, &holding, &found, &replaced), "room");
            CHECK_EQUAL(replaced, bytes_of[i] != 0);
            CHECK(!replaced || found.bytes == bytes_of[i], "the old one");
            bytes_of[i] = holding.bytes;
        } else {
            CHECK_EQUAL(aliquot_table_take(address, &found), bytes_of[i] != 0);
            CHECK(bytes_of[i] == 0 || found.bytes == bytes_of[i], "the one put");
            bytes_of[i] = 0;
        }
    }
    aliquot_table_reset();
    struct aliquot_holding found;
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        CHECK(!aliquot_table_take((i + 1) * 512, &found), "nothing");
    }
}

static uint64_t given_back;

static void count(const struct aliquot_holding *holding) {
    given_back += holding->bytes;
}

TEST(all_of_one_context_and_nothing_else_is_taken_with_it) {
    enum { ADDRESSES = 30000 };
    static char contexts[3];
    bool replaced;
    struct aliquot_holding old;
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        struct aliquot_holding holding = {.bytes = 1, .context = &contexts[i % 3]};
        CHECK(aliquot_table_put((i + 1) * 4096, &holding, &old, &replaced), "room");
    }
    aliquot_table_take_context(&contexts[1], count);
    CHECK_EQUAL(given_back, ADDRESSES / 3);
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        CHECK_EQUAL(aliquot_table_take((i + 1) * 4096, &old), i % 3 != 1);
    }
}

static void open_account(const char *path) {
    char error[ALIQUOT_SHARED_ERROR];
    struct aliquot_limits limits = {
        .count = 1,
        .vgpu = {{.uuid = "\x8f\x6e\x8f\x0c\x01\x01\x4a\x5b\x9c\x3d\x01\x01\x01\x01\x01", .memory = 100 * MIB}}};
    CHECK(aliquot_shared_open(path, error), "%s", error);
    CHECK(aliquot_account_limits(&limits, error), "%s", error);
}

static void *reserve_and_release(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int i = 0; i < 3000; i++) {
        uint64_t bytes = (1 + (uint64_t)rand_r(&seed) % 60) * MIB;
        if (aliquot_account_reserve(0, bytes)) {
            struct aliquot_holding holding = {.bytes = bytes}, old;
            bool replaced;
            uint64_t address = (uint64_t)(uintptr_t)argument << 32 | ((uint64_t)i + 1);
            CHECK(aliquot_table_put(address, &holding, &old, &replaced) && !replaced, "room");
            CHECK(aliquot_account_used(0) <= 4 * 160 * MIB, "decided and undecided");
            CHECK(aliquot_table_take(address, &old), "what was put");
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
    CHECK(aliquot_account_reserve(0, 100 * MIB), "all of it");
}

TEST(more_processes_than_slots_are_refused_and_not_counted_wrong) {
    enum { PEERS = ALIQUOT_REGION_PROCESSES };
    char path[] = "/tmp/aliquot-core-XXXXXX";
    CHECK(mkstemp(path) >= 0, "%s", path);
    int ready[2], stop[2];
    CHECK(pipe(ready) == 0 && pipe(stop) == 0, "pipes");
    for (int i = 0; i < PEERS; i++) {
        if (fork() == 0) {
            char byte;
            close(stop[1]);
            open_account(path);
            byte = aliquot_account_reserve(0, 1) ? 'y' : 'n';
            CHECK(write(ready[1], &byte, 1) == 1 && read(stop[0], &byte, 1) == 0, "pipes");
            _exit(EXIT_SUCCESS);
        }
    }
    for (int i = 0; i < PEERS; i++) {
        char byte;
        CHECK(read(ready[0], &byte, 1) == 1 && byte == 'y', "peer %d", i);
    }
    open_account(path);
    CHECK_EQUAL(aliquot_account_used(0), PEERS);
    CHECK(!aliquot_account_reserve(0, 1), "no slot");
    close(stop[1]);
    while (wait(NULL) > 0) {
    }
    CHECK(aliquot_account_reserve(0, 100 * MIB), "all of it, once the peers are gone");
    unlink(path);
}
