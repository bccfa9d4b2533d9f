/* Tests of how a process reads the agent's file. */
#include "check.h"
#include "limits/account.h"
#include "os/agent_file.h"
#include "os/os.h"
#include "os/shared.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MIB (UINT64_C(1) << 20)
#define MS INT64_C(1000000)
#define NOW_MS ((uint64_t)(aliquot_os_clock() / MS))

static const uint8_t uuid[16] = "\x8f\x6e\x8f\x0c\x01\x01\x4a\x5b\x9c\x3d\x01\x01\x01\x01\x01";
static char path[] = "/tmp/aliquot-agent-XXXXXX";
static int file = -1;

static void remove_file(void) {
    unlink(path);
}

static struct aliquot_agent valid_agent(void) {
    return (struct aliquot_agent){.header = ALIQUOT_AGENT_HEADER};
}

static void create(const void *content, size_t size) {
    file = mkstemp(path);
    CHECK(file >= 0 && write(file, content, size) == (ssize_t)size, "%s", path);
    atexit(remove_file);
}

/* Writes an entry as the node agent does: its values first, its UUID last. */
static void write_entry(int index, struct aliquot_agent_device entry) {
    off_t at = (off_t)(sizeof(struct aliquot_agent_header) + (size_t)index * sizeof entry);
    memcpy(entry.uuid, uuid, sizeof entry.uuid);
    const size_t start = offsetof(struct aliquot_agent_device, grant), size = sizeof entry - start;
    CHECK(pwrite(file, (char *)&entry + start, size, at + (off_t)start) == (ssize_t)size, "values");
    CHECK(pwrite(file, entry.uuid, sizeof entry.uuid, at) == (ssize_t)sizeof entry.uuid, "UUID");
}

static void open_account(void) {
    char error[ALIQUOT_SHARED_ERROR];
    struct aliquot_limits limits = {.count = 1, .vgpu = {{.memory = 100 * MIB}}};
    memcpy(limits.vgpu[0].uuid, uuid, sizeof uuid);
    CHECK(aliquot_shared_open(NULL, NULL, error), "%s", error);
    CHECK(aliquot_account_set_limits(&limits, error), "%s", error);
}

static void check_golden(const char *name) {
    static const uint8_t first[16] = {0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
                                      0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f};
    static const uint8_t last[16] = {0x80, 0x7f, 0x7e, 0x7d, 0x7c, 0x7b, 0x7a, 0x79,
                                     0x78, 0x77, 0x76, 0x75, 0x74, 0x73, 0x72, 0x71};
    CHECK(aliquot_agent_open(name, NULL), "%s", name);
    const struct aliquot_agent_device *device = aliquot_agent_device(first);
    CHECK_EQUAL(aliquot_agent_holds(), ALIQUOT_AGENT_HOLDS_WHOLE_CARDS);
    CHECK_EQUAL(ALIQUOT_GRANT_SHARE(device->grant), 300000);
    CHECK_EQUAL(ALIQUOT_GRANT_MS(device->grant), 86400000);
    CHECK_EQUAL(device->unattributed, 256 * MIB);
    CHECK_EQUAL(device->updated_ms, 86400001);
    CHECK_EQUAL(ALIQUOT_GRANT_SHARE(device->active), 3);
    CHECK_EQUAL(ALIQUOT_GRANT_MS(device->active), 86400002);
    CHECK_EQUAL(ALIQUOT_GRANT_SHARE(device->borrowed), 400000);
    CHECK_EQUAL(ALIQUOT_TURN_FROM(device->turn), 511);
    CHECK_EQUAL(ALIQUOT_TURN_LENGTH(device->turn), 512);
    CHECK((device->turn & ALIQUOT_TURN_WAITS) != 0, "it waits for its turn");
    CHECK_EQUAL(aliquot_agent_device(last)->active, UINT64_MAX);
    CHECK(aliquot_agent_device(uuid) == &aliquot_agent_nothing, "a GPU that the file does not name");
}

TEST(the_golden_file_is_read) {
    check_golden(GOLDEN "/agent.bin");
}

/* Of the newest release, or the commit before the first one: a container's file stays when the node agent is upgraded.
 */
TEST(the_file_of_the_earlier_version_is_read) {
    check_golden(GOLDEN "/earlier/agent.bin");
}

TEST(a_file_that_is_missing_or_of_another_version_says_nothing) {
    CHECK(!aliquot_agent_open("/nowhere/agent", NULL), "a missing file");
    CHECK(!aliquot_agent_open("/tmp", NULL), "a folder");
    struct aliquot_agent wrong[] = {valid_agent(), valid_agent(), valid_agent()};
    wrong[0].header.version = 2;
    wrong[1].header.magic ^= 1;
    wrong[2].header.device_size = 64;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(path, sizeof path, "/tmp/aliquot-agent-XXXXXX");
        create(&wrong[i], sizeof wrong[i]);
        write_entry(0, (struct aliquot_agent_device){.unattributed = 30 * MIB, .updated_ms = NOW_MS});
        CHECK(!aliquot_agent_open(path, NULL), "wrong header %zu", i);
        CHECK(aliquot_agent_device(uuid) == &aliquot_agent_nothing, "no entry");
        remove_file();
    }
    snprintf(path, sizeof path, "/tmp/aliquot-agent-XXXXXX");
    struct aliquot_agent right = valid_agent();
    create(&right, sizeof right - 1);
    CHECK(!aliquot_agent_open(path, NULL), "a short file");
    open_account();
    CHECK_EQUAL(aliquot_account_used(0), 0);
}

TEST(a_process_cannot_write_the_agents_file) {
    struct aliquot_agent content = valid_agent();
    create(&content, sizeof content);
    write_entry(0, (struct aliquot_agent_device){.unattributed = MIB, .updated_ms = NOW_MS});
    CHECK(aliquot_agent_open(path, NULL), "%s", path);
    const struct aliquot_agent_device *device = aliquot_agent_device(uuid);
    void *page = (void *)((uintptr_t)device & ~(uintptr_t)4095);
    CHECK(chmod(path, 0444) == 0, "chmod");
    pid_t child = fork();
    if (child == 0) {
        *(volatile uint64_t *)(uintptr_t)&device->unattributed = 0;
        _exit(EXIT_SUCCESS);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS, "a write through the mapping ends the process");
    CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0, "the file was opened for reading only");
    CHECK_EQUAL(device->unattributed, MIB);
}

TEST(an_entry_that_the_agent_adds_later_is_found) {
    struct aliquot_agent content = valid_agent();
    create(&content, sizeof content);
    CHECK(aliquot_agent_open(path, NULL), "%s", path);
    open_account();
    CHECK_EQUAL(aliquot_account_used(0), 0);
    write_entry(7, (struct aliquot_agent_device){
                       .unattributed = 30 * MIB, .updated_ms = NOW_MS, .active = ALIQUOT_GRANT(NOW_MS, 2)});
    aliquot_account_follow_agent();
    CHECK_EQUAL(aliquot_account_used(0), 30 * MIB);
    CHECK_EQUAL(ALIQUOT_GRANT_SHARE(aliquot_account_agent(0)->active), 2);
    CHECK(!aliquot_account_reserve(0, 70 * MIB + 1, false), "more than the rest");
    CHECK(aliquot_account_reserve(0, 70 * MIB, false), "the rest");
    write_entry(7, (struct aliquot_agent_device){.unattributed = 0, .updated_ms = NOW_MS});
    CHECK(aliquot_account_reserve(0, 30 * MIB, false), "what the agent has released");
}

TEST(a_word_of_the_arbiter_is_fresh_for_its_time_and_not_for_ever_in_the_future) {
    int64_t now = INT64_C(5000) * MS;
    CHECK(aliquot_agent_is_fresh(ALIQUOT_GRANT(5000, 1), now, 100 * MS), "just written");
    CHECK(aliquot_agent_is_fresh(ALIQUOT_GRANT(4900, 0), now, 100 * MS), "a word of number 0");
    CHECK(!aliquot_agent_is_fresh(ALIQUOT_GRANT(4899, 1), now, 100 * MS), "too old");
    CHECK(aliquot_agent_is_fresh(ALIQUOT_GRANT(5004, 1), now, 100 * MS), "the coarse clock lags");
    CHECK(!aliquot_agent_is_fresh(ALIQUOT_GRANT(5101, 1), now, 100 * MS), "from before a reboot");
    CHECK(!aliquot_agent_is_fresh(UINT64_MAX, now, 100 * MS), "a time of 500 years");
    CHECK(!aliquot_agent_is_fresh(0, 50 * MS, 100 * MS), "never written, soon after boot");
}

TEST(unattributed_memory_counts_for_a_minute_after_the_agents_last_word) {
    struct aliquot_agent content = valid_agent();
    create(&content, sizeof content);
    CHECK(aliquot_agent_open(path, NULL), "%s", path);
    open_account();
    const struct {
        uint64_t updated_ms;
        bool counts;
    } cases[] = {{NOW_MS, true},          {NOW_MS - 59000, true},
                 {NOW_MS - 61000, false}, {NOW_MS + 120000, false}, /* from before a reboot */
                 {UINT64_MAX, false},     {0, NOW_MS <= 60000}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_entry(0, (struct aliquot_agent_device){.unattributed = 30 * MIB, .updated_ms = cases[i].updated_ms});
        aliquot_account_follow_agent();
        CHECK_EQUAL(aliquot_account_used(0), cases[i].counts ? 30 * MIB : 0);
    }
}

static void *follow(void *argument) {
    while (!__atomic_load_n((bool *)argument, __ATOMIC_RELAXED)) {
        aliquot_account_follow_agent();
    }
    return NULL;
}

TEST(threads_read_what_the_agent_says_without_a_race) {
    struct aliquot_agent content = valid_agent();
    bool stop = false;
    pthread_t thread;
    create(&content, sizeof content);
    CHECK(aliquot_agent_open(path, NULL), "%s", path);
    open_account();
    CHECK_EQUAL(pthread_create(&thread, NULL, follow, &stop), 0);
    for (int i = 0; i < 2000; i++) {
        write_entry(0, (struct aliquot_agent_device){.unattributed = MIB, .updated_ms = i % 2 == 0 ? NOW_MS : 1});
        uint64_t used = aliquot_account_used(0);
        CHECK(used == 0 || used == MIB, "%llu", (unsigned long long)used);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}
