/* Tests of the arbiter as a program: with real regions and agent's files, and lists on its standard input. */
#include "aliquot/agent.h"
#include "aliquot/region.h"
#include "check.h"

#include <stdbool.h>
#include <time.h>

#define MS INT64_C(1000000)
#define GPU "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"
#define OTHER_GPU "MIG-20212223-2425-2627-2829-2a2b2c2d2e2f"

static char folder[] = "/tmp/aliquot-arbiter-XXXXXX";
static int input = -1; /* of the arbiter */
static int errors = -1;
static pid_t arbiter;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (arbiter > 0) {
        kill(arbiter, SIGKILL);
    }
    CHECK(system(command) == 0, "%s", command);
}

static void write_file(const char *kind, const char *slot, off_t at, const void *bytes, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s/%s", folder, kind, slot);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    CHECK(file >= 0 && pwrite(file, bytes, size, at) == (ssize_t)size, "%s", path);
    close(file);
}

static void uuid_of(const char *name, uint8_t uuid[16]) {
    int base = strcmp(name, GPU) == 0 ? 0x10 : 0x20;
    for (int i = 0; i < 16; i++) {
        uuid[i] = (uint8_t)(base + i);
    }
}

/* Writes a container's agent's file with both GPUs, the other one first. */
static void create_agent(const char *slot) {
    struct aliquot_agent agent = {.header = ALIQUOT_AGENT_HEADER};
    uuid_of(OTHER_GPU, agent.device[0].uuid);
    uuid_of(GPU, agent.device[1].uuid);
    agent.device[1].unattributed = 7;
    agent.device[1].updated_ms = 8;
    write_file("agents", slot, 0, &agent, sizeof agent);
}

static void write_device(const char *slot, int index, const char *gpu, struct aliquot_device device) {
    uuid_of(gpu, device.uuid);
    write_file("regions", slot, (off_t)(offsetof(struct aliquot_region, device) + (size_t)index * sizeof device),
               &device, sizeof device);
}

/* The container has a launch waiting. */
static void work(const char *slot, const char *gpu) {
    static uint64_t throttled;
    write_device(slot, 0, gpu, (struct aliquot_device){.wanted = (uint64_t)now(), .throttled = throttled += 1});
}

/* The container has 20 ms of work in flight. */
static void fly(const char *slot, const char *gpu) {
    write_device(slot, 0, gpu, (struct aliquot_device){.in_flight = (uint64_t)(now() + 20 * MS)});
}

static struct aliquot_agent_device read_agent(const char *slot, int index) {
    char path[128];
    struct aliquot_agent agent;
    snprintf(path, sizeof path, "%s/agents/%s", folder, slot);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && pread(file, &agent, sizeof agent, 0) == sizeof agent, "%s", path);
    close(file);
    return agent.device[index];
}

static void tell(const char *text) {
    CHECK(write(input, text, strlen(text)) == (ssize_t)strlen(text), "the arbiter reads");
}

static void start_arbiter(void) {
    char regions[128], agents[128];
    int in[2], err[2];
    CHECK(mkdtemp(folder) != NULL && pipe(in) == 0 && pipe(err) == 0, "%s", folder);
    atexit(remove_folder);
    snprintf(regions, sizeof regions, "%s/regions", folder);
    snprintf(agents, sizeof agents, "%s/agents", folder);
    CHECK(mkdir(regions, 0777) == 0 && mkdir(agents, 0777) == 0, "folders");
    arbiter = fork();
    if (arbiter == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], STDIN_FILENO);
        dup2(err[1], STDERR_FILENO);
        close(in[1]);
        execl(ARBITER, ARBITER, regions, agents, "7", NULL);
        _exit(127);
    }
    close(in[0]);
    close(err[1]);
    input = in[1];
    errors = err[0];
}

/* Reads lines of the arbiter's standard error until one contains the text. */
static void expect_error(const char *text) {
    static char line[4096];
    size_t length = 0;
    while (length < sizeof line - 1 && read(errors, line + length, 1) == 1) {
        line[++length] = 0;
        if (line[length - 1] == '\n' && strstr(line, text) != NULL) {
            return;
        }
    }
    CHECK(false, "%s in \"%s\"", text, line);
}

/* Waits until a condition holds, for 10 s at most, while the containers of a list keep working. */
#define WAIT_UNTIL(condition, keep_working)                                                                            \
    for (int64_t wait_end = now() + 10000 * MS; !(condition);) {                                                       \
        CHECK(now() < wait_end, "%s in 10 s", #condition);                                                             \
        keep_working;                                                                                                  \
        usleep(2000);                                                                                                  \
    }

#define GRANTED(slot) ALIQUOT_GRANT_SHARE(read_agent(slot, 1).grant)
#define BORROWED(slot) ALIQUOT_GRANT_SHARE(read_agent(slot, 1).borrowed)
#define YIELD(slot) ALIQUOT_GRANT_SHARE(read_agent(slot, 1).yield)
#define ACTIVE(slot) ALIQUOT_GRANT_SHARE(read_agent(slot, 1).active)

TEST(it_writes_its_words_and_nothing_else) {
    start_arbiter();
    create_agent("slot-1");
    struct aliquot_agent_device before = read_agent("slot-1", 1);
    tell("slot-1 " GPU " 30 elastic normal 41.5\n.\n");
    WAIT_UNTIL(GRANTED("slot-1") == 300000 && BORROWED("slot-1") == 1000000 && ACTIVE("slot-1") == 1, (void)0);
    int64_t written = (int64_t)ALIQUOT_GRANT_MS(read_agent("slot-1", 1).active) * MS;
    CHECK(written <= now() && now() - written < 5000 * MS, "the time of CLOCK_MONOTONIC");
    WAIT_UNTIL((int64_t)ALIQUOT_GRANT_MS(read_agent("slot-1", 1).active) * MS > written, (void)0);
    struct aliquot_agent_device after = read_agent("slot-1", 1);
    after.grant = after.active = after.borrowed = 0;
    CHECK(memcmp(&after, &before, sizeof after) == 0, "the node agent's fields are the node agent's");
    CHECK_EQUAL(read_agent("slot-1", 0).active, 0); /* the other GPU is not in the list */
}

TEST(containers_on_two_GPUs_lend_to_those_on_their_own) {
    start_arbiter();
    const char *slots[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        create_agent(slots[i]);
    }
    write_file("regions", "c", 0, "", 0); /* a container that has not started */
    tell("a " GPU " 30 elastic normal -\nb " GPU " 50 fixed normal -\nb " OTHER_GPU " 20 fixed low -\n"
         "c " GPU " 10 fixed high -\n.\n");
    WAIT_UNTIL(BORROWED("a") == 1000000, work("a", GPU));
    CHECK_EQUAL(ACTIVE("a"), 1);
    WAIT_UNTIL(ACTIVE("b") == 2, work("a", GPU));
    WAIT_UNTIL(BORROWED("a") < 220000 && ACTIVE("a") == 2, (work("a", GPU), work("b", GPU)));
    CHECK_EQUAL(GRANTED("b"), 500000);
    CHECK_EQUAL(GRANTED("c"), 100000);
    CHECK_EQUAL(ALIQUOT_GRANT_SHARE(read_agent("b", 0).grant), 200000);
    WAIT_UNTIL(BORROWED("a") == 1000000, work("b", OTHER_GPU)); /* its region's entry is another GPU's now */
}

TEST(low_priority_gives_way_while_high_priority_has_work_on_its_GPU) {
    start_arbiter();
    const char *slots[] = {"high", "low", "normal"};
    for (int i = 0; i < 3; i++) {
        create_agent(slots[i]);
        write_device(slots[i], 0, GPU, (struct aliquot_device){0});
    }
    tell("high " GPU " 30 elastic high -\nlow " GPU " 50 elastic low -\nnormal " GPU " 10 fixed normal -\n"
         "low " OTHER_GPU " 50 elastic low -\n.\n");
    WAIT_UNTIL(YIELD("low") == 7, (void)0);
    WAIT_UNTIL(YIELD("low") == (7 | ALIQUOT_YIELD_NOW), (work("low", GPU), fly("high", GPU)));
    WAIT_UNTIL(YIELD("low") == 7, work("low", GPU));
    CHECK(YIELD("normal") == 0 && YIELD("high") == 0, "others do not give way");
    CHECK_EQUAL(read_agent("low", 0).yield, 0); /* none of high priority there */
    tell("high " GPU " 30 elastic normal -\nlow " GPU " 50 elastic low -\n.\n");
    uint64_t last = 0;
    WAIT_UNTIL(last == read_agent("low", 1).yield, (last = read_agent("low", 1).yield, usleep(100000)));
}

TEST(work_that_NVML_does_not_confirm_and_random_bytes_do_not_keep_low_priority_waiting) {
    uint8_t bytes[sizeof(struct aliquot_device)];
    unsigned random = 1;
    start_arbiter();
    create_agent("high");
    create_agent("low");
    for (int i = 0; i < 8; i++) { /* at 10 Hz */
        tell("high " GPU " 30 elastic high 0\nlow " GPU " 50 elastic low 90\n.\n");
        for (size_t j = 0; j < sizeof bytes; j++) {
            bytes[j] = (uint8_t)(rand_r(&random) >> 8);
        }
        struct aliquot_device device;
        memcpy(&device, bytes, sizeof device);
        write_device("high", 0, GPU, device);
        work("low", GPU);
        usleep(20000);
        CHECK((YIELD("low") & ALIQUOT_YIELD_NOW) == 0, "random bytes are no work");
    }
    int64_t preempted = 0, told = 0, begun = now();
    WAIT_UNTIL(preempted > 0 && (YIELD("low") & ALIQUOT_YIELD_NOW) == 0, {
        fly("high", GPU);
        work("low", GPU);
        preempted += (YIELD("low") & ALIQUOT_YIELD_NOW) != 0;
        if (now() - told > 500 * MS) {
            tell("high " GPU " 30 elastic high 0\nlow " GPU " 50 elastic low 0\n.\n");
            told = now();
        }
    });
    CHECK(now() - begun > 1000 * MS, "it was believed for a second");
}

TEST(a_list_replaces_the_one_before_and_a_slot_gets_a_new_container) {
    start_arbiter();
    create_agent("a");
    tell("a " GPU " 30 fixed normal -\n.\n");
    WAIT_UNTIL(GRANTED("a") == 300000, (void)0);
    tell("a " GPU " 45 fixed normal -\n.\n");
    WAIT_UNTIL(GRANTED("a") == 450000, (void)0);
    char path[128];
    snprintf(path, sizeof path, "%s/agents/a", folder);
    CHECK(unlink(path) == 0, "%s", path);
    create_agent("a");
    WAIT_UNTIL(GRANTED("a") == 450000, (void)0);
    tell(".\n");
    tell("a " GPU " 50 ");
    tell("none normal -\n.\n"); /* a line in two parts; no limit, so no grant */
    usleep(60000);
    CHECK_EQUAL(GRANTED("a"), 450000);
}

TEST(malformed_lines_are_reported_and_skipped) {
    static const char *const lines[] = {
        "",
        "a",
        "a " GPU " 30 fixed normal",
        "a " GPU " 101 fixed normal -",
        "a " GPU " -1 fixed normal -",
        "a " GPU " 1.5 fixed normal -",
        "a " GPU " 30 lavish normal -",
        "a " GPU " 30 fixed urgent -",
        "a " GPU " 30 fixed normal nan",
        "a " GPU " 30 fixed normal 5x",
        "a " GPU " 30 fixed normal - more",
        "a GPU-1 30 fixed normal -",
        "a CPU-10111213-1415-1617-1819-1a1b1c1d1e1f 30 fixed normal -",
        "../a " GPU " 30 fixed normal -",
        ".a " GPU " 30 fixed normal -",
    };
    start_arbiter();
    create_agent("a");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        tell(lines[i]);
        tell("\n");
        expect_error(lines[i]);
    }
    char longest[2000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    tell(longest);
    tell("\na " GPU " 30 fixed normal -\na " GPU " 40 fixed normal -\n.\n");
    expect_error("xxxx");
    expect_error("twice");
    WAIT_UNTIL(GRANTED("a") != 0, (void)0);
}

TEST(regions_with_random_bytes_and_truncated_ones_take_nothing_from_others) {
    static uint8_t bytes[ALIQUOT_REGION_SIZE / 16];
    char path[128];
    unsigned random = 1;
    start_arbiter();
    create_agent("good");
    create_agent("bad");
    snprintf(path, sizeof path, "%s/regions/bad", folder);
    tell("good " GPU " 30 elastic normal -\nbad " GPU " 20 elastic normal -\n.\n");
    for (int round = 0; round < 60; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (uint8_t)(rand_r(&random) >> 8);
        }
        uuid_of(GPU, bytes + offsetof(struct aliquot_region, device)); /* so that it reads the rest */
        write_file("regions", "bad", 0, bytes, sizeof bytes);
        work("good", GPU);
        usleep(10000);
        CHECK(truncate(path, rand_r(&random) % 5000) == 0, "%s", path);
        usleep(3000);
        CHECK(GRANTED("good") == 0 || GRANTED("good") == 300000, "%u", GRANTED("good"));
    }
    WAIT_UNTIL(GRANTED("good") == 300000 && BORROWED("good") >= 490000, work("good", GPU));
}

TEST(the_end_of_the_input_ends_it) {
    int status = -1;
    start_arbiter();
    create_agent("a");
    tell("a " GPU " 30 fixed normal -\n.\na " GPU);
    WAIT_UNTIL(GRANTED("a") == 300000, (void)0);
    close(input);
    CHECK_EQUAL(waitpid(arbiter, &status, 0), arbiter);
    arbiter = 0;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
}

TEST(without_two_folders_it_says_how_it_is_called) {
    CHECK(system(ARBITER " /nowhere /tmp 2>/dev/null") == 2 << 8, "a folder that is missing");
    CHECK(system(ARBITER " 2>/dev/null </dev/null") == 2 << 8, "no folders");
    CHECK(system(ARBITER " /tmp /tmp 101 2>/dev/null </dev/null") == 2 << 8, "more than the GPU");
    CHECK(system(ARBITER " /tmp /tmp 5x 2>/dev/null </dev/null") == 2 << 8, "no number");
    CHECK(system(ARBITER " /tmp /tmp -1 2>/dev/null </dev/null") == 2 << 8, "a negative number");
}
