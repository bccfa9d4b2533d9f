/* Tests of the arbiter as a program: with real regions and agent's files, and lists on its standard input. */
#include "aliquot/agent.h"
#include "aliquot/region.h"
#include "check.h"

#include <stdbool.h>
#include <time.h>

#define MS INT64_C(1000000)
#define GPU "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"
#define OTHER_GPU "MIG-20212223-2425-2627-2829-2a2b2c2d2e2f"

static char folder[] = "/tmp/aliquot-arbiter-XXXXXX", regions[128], agents[128];
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

/* Path of a container's file; valid until the next call. */
static const char *path_of(const char *kind, const char *slot) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s/%s", folder, kind, slot);
    return path;
}

static void write_file(const char *kind, const char *slot, off_t at, const void *bytes, size_t size) {
    const char *path = path_of(kind, slot);
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

/* The same, and it gets all of the GPU. */
static void use(const char *slot, const char *gpu) {
    static uint64_t throttled, gpu_time;
    gpu_time += 50 * MS;
    write_device(slot, 0, gpu,
                 (struct aliquot_device){.wanted = (uint64_t)now(), .throttled = throttled += 1, .gpu_time = gpu_time});
}

/* The container keeps work queued and gets 10 % of the GPU. Its clock is ahead of the node's. */
static void queue(const char *slot, const char *gpu, int64_t ahead) {
    uint64_t nanoseconds = (uint64_t)now(), its_now = (uint64_t)(now() + ahead);
    write_device(slot, 0, gpu,
                 (struct aliquot_device){.wanted = its_now,
                                         .queued = its_now,
                                         .in_flight = its_now + 5 * MS,
                                         .throttled = nanoseconds,
                                         .gpu_time = nanoseconds / 10});
}

/* The container has work in flight. */
static void fly(const char *slot, const char *gpu, int64_t time) {
    write_device(slot, 0, gpu, (struct aliquot_device){.in_flight = (uint64_t)(now() + time)});
}

static struct aliquot_agent_device read_agent(const char *slot, int index) {
    const char *path = path_of("agents", slot);
    struct aliquot_agent agent;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && pread(file, &agent, sizeof agent, 0) == sizeof agent, "%s", path);
    close(file);
    return agent.device[index];
}

static void tell(const char *text) {
    CHECK(write(input, text, strlen(text)) == (ssize_t)strlen(text), "the arbiter reads");
}

/* Starts the arbiter with its files as they are. */
static void start_arbiter_again(void) {
    int in[2], err[2];
    CHECK(pipe(in) == 0 && pipe(err) == 0, "pipes");
    close(input);
    close(errors);
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

static void start_arbiter(void) {
    CHECK(mkdtemp(folder) != NULL, "%s", folder);
    atexit(remove_folder);
    snprintf(regions, sizeof regions, "%s/regions", folder);
    snprintf(agents, sizeof agents, "%s/agents", folder);
    CHECK(mkdir(regions, 0777) == 0 && mkdir(agents, 0777) == 0, "folders");
    start_arbiter_again();
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
#define TURN(slot) ALIQUOT_GRANT_SHARE(read_agent(slot, 1).turn)
#define ALWAYS (ALIQUOT_TURN_WAITS | ALIQUOT_TURN(0, ALIQUOT_ROUND_UNITS))
#define NEVER ALIQUOT_TURN_WAITS
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
    WAIT_UNTIL(TURN("low") == ALWAYS, (void)0);
    WAIT_UNTIL(TURN("low") == NEVER, (use("low", GPU), fly("high", GPU, 20 * MS)));
    WAIT_UNTIL(TURN("low") == ALWAYS, use("low", GPU));
    CHECK(TURN("normal") == 0 && TURN("high") == 0, "others do not give way");
    CHECK_EQUAL(read_agent("low", 0).turn, 0); /* none of high priority there */
    tell("high " GPU " 30 elastic normal -\nlow " GPU " 50 elastic low -\n.\n");
    uint64_t last = 0;
    WAIT_UNTIL(TURN("low") == 0 && last == read_agent("low", 1).turn,
               (last = read_agent("low", 1).turn, usleep(100000)));
}

/* The good one is alone then: the whole round is its turn. */
TEST(a_container_whose_clock_is_not_the_nodes_takes_no_turn_and_no_one_waits_for_it) {
    start_arbiter();
    create_agent("good");
    create_agent("bad");
    tell("good " GPU " 30 fixed normal -\nbad " GPU " 40 fixed normal -\n.\n");
    WAIT_UNTIL(TURN("good") != 0 && TURN("bad") != 0 && ACTIVE("good") == 2,
               (queue("good", GPU, 0), queue("bad", GPU, 0)));
    for (int64_t sign = -1; sign <= 1; sign += 2) {
        WAIT_UNTIL(TURN("good") == ALWAYS && TURN("bad") == 0 && ACTIVE("good") == 1,
                   (queue("good", GPU, 0), queue("bad", GPU, sign * 1000000 * MS)));
        for (int64_t start = now(); now() - start < 1300 * MS; usleep(2000)) {
            queue("good", GPU, 0);
            queue("bad", GPU, sign * 1000000 * MS);
            CHECK(TURN("good") == ALWAYS && TURN("bad") == 0 && ACTIVE("good") == 1, "%d s ahead", (int)sign * 1000);
        }
    }
}

TEST(a_container_on_two_GPUs_takes_no_turn_on_either_and_others_do) {
    start_arbiter();
    const char *slots[] = {"ranks", "rival", "third"};
    for (int i = 0; i < 3; i++) {
        create_agent(slots[i]);
    }
    tell("ranks " GPU " 30 fixed normal -\nranks " OTHER_GPU " 30 fixed normal -\nrival " GPU
         " 30 fixed normal -\nthird " GPU " 30 fixed normal -\n.\n");
    WAIT_UNTIL(TURN("rival") != 0 && TURN("third") != 0,
               (queue("ranks", GPU, 0), queue("rival", GPU, 0), queue("third", GPU, 0)));
    CHECK(TURN("ranks") == 0 && read_agent("ranks", 0).turn == 0, "its kernels may wait for each other");
    tell("ranks " GPU " 30 fixed normal -\nrival " GPU " 30 fixed normal -\nthird " GPU " 30 fixed normal -\n.\n");
    WAIT_UNTIL(TURN("ranks") != 0, (queue("ranks", GPU, 0), queue("rival", GPU, 0), queue("third", GPU, 0)));
}

TEST(work_that_NVML_does_not_confirm_and_random_bytes_do_not_keep_low_priority_waiting) {
    uint8_t bytes[sizeof(struct aliquot_device)];
    unsigned random = 1;
    start_arbiter();
    create_agent("high");
    create_agent("low");
    for (int i = 0; i < 8; i++) { /* at 50 Hz */
        tell("high " GPU " 30 elastic high 0\nlow " GPU " 50 elastic low 90\n.\n");
        for (size_t j = 0; j < sizeof bytes; j++) {
            bytes[j] = (uint8_t)(rand_r(&random) >> 8);
        }
        struct aliquot_device device;
        memcpy(&device, bytes, sizeof device);
        write_device("high", 0, GPU, device);
        use("low", GPU);
        usleep(20000);
        CHECK(TURN("low") == ALWAYS || TURN("low") == 0, "random bytes are no work");
    }
    int64_t preempted = 0, told = 0, begun = now();
    WAIT_UNTIL(preempted > 0 && TURN("low") == ALWAYS, {
        fly("high", GPU, 1900 * MS);
        use("low", GPU);
        preempted += TURN("low") != ALWAYS;
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
    CHECK(unlink(path_of("agents", "a")) == 0, "the file");
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
    unsigned random = 1;
    start_arbiter();
    create_agent("good");
    create_agent("bad");
    tell("good " GPU " 30 elastic normal -\nbad " GPU " 20 elastic normal -\n.\n");
    for (int round = 0; round < 60; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (uint8_t)(rand_r(&random) >> 8);
        }
        uuid_of(GPU, bytes + offsetof(struct aliquot_region, device)); /* so that it reads the rest */
        write_file("regions", "bad", 0, bytes, sizeof bytes);
        work("good", GPU);
        usleep(10000);
        CHECK(truncate(path_of("regions", "bad"), rand_r(&random) % 5000) == 0, "the region");
        usleep(3000);
        CHECK(GRANTED("good") == 0 || GRANTED("good") == 300000, "%u", GRANTED("good"));
    }
    WAIT_UNTIL(GRANTED("good") == 300000 && BORROWED("good") >= 490000, work("good", GPU));
}

/* Takes leases on a file in a process of its own, again and again. */
static pid_t keep_leasing(const char *path, int kind) {
    pid_t tenant = fork();
    if (tenant == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGIO, SIG_IGN);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        for (;;) {
            fcntl(file, F_SETLEASE, kind);
            usleep(1000);
        }
    }
    for (int64_t end = now() + 10000 * MS;;) { /* until it has one */
        int file = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (file < 0) {
            return tenant;
        }
        close(file);
        CHECK(now() < end, "a lease on %s", path);
        usleep(2000);
    }
}

/* An open that waited would take 45 s (/proc/sys/fs/lease-break-time). */
TEST(a_container_with_leases_on_its_files_delays_no_word_to_others) {
    start_arbiter();
    create_agent("bad");
    create_agent("worse");
    write_file("regions", "bad", 0, "", 0);
    write_file("regions", "worse", 0, "", 0);
    pid_t tenants[] = {keep_leasing(path_of("regions", "bad"), F_WRLCK),
                       keep_leasing(path_of("agents", "worse"), F_RDLCK)};
    create_agent("good");
    tell("bad " GPU " 20 elastic normal -\nworse " GPU " 20 elastic normal -\ngood " GPU " 30 elastic normal -\n.\n");
    WAIT_UNTIL(GRANTED("good") == 300000, work("good", GPU));
    for (int64_t start = now(); now() - start < 1200 * MS;) { /* it looks at the files once a second */
        work("good", GPU);
        usleep(10000);
        int64_t age = now() - (int64_t)ALIQUOT_GRANT_MS(read_agent("good", 1).active) * MS;
        CHECK(age < 1000 * MS, "a word is %ld ms old", (long)(age / MS));
    }
    CHECK_EQUAL(GRANTED("worse"), 0);
    for (int i = 0; i < 2; i++) {
        kill(tenants[i], SIGKILL);
        waitpid(tenants[i], NULL, 0);
    }
    WAIT_UNTIL(GRANTED("worse") == 200000, (void)0);
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

/* ---- faults ---- */

/* As the node agent does. */
static void write_unattributed(const char *slot, uint64_t bytes) {
    uint64_t words[] = {bytes, (uint64_t)(now() / MS)};
    write_file("agents", slot, (off_t)offsetof(struct aliquot_agent, device[1].unattributed), words, sizeof words);
}

static bool is_word(uint64_t word, uint32_t most) {
    return word == 0 || (ALIQUOT_GRANT_SHARE(word) <= most && (int64_t)ALIQUOT_GRANT_MS(word) <= now() / MS);
}

TEST(killed_at_any_instruction_it_leaves_whole_words_and_the_node_agents_fields) {
    unsigned random = 1;
    start_arbiter();
    create_agent("a");
    for (uint64_t round = 1; round <= 60; round++) {
        tell("a " GPU " 30 elastic normal -\n.\n");
        write_unattributed("a", round);
        usleep((unsigned)rand_r(&random) % 8000);
        CHECK(kill(arbiter, SIGKILL) == 0 && waitpid(arbiter, NULL, 0) == arbiter, "it runs");
        struct aliquot_agent_device left = read_agent("a", 1);
        CHECK(left.grant == 0 || ALIQUOT_GRANT_SHARE(left.grant) == 300000, "%llx", (unsigned long long)left.grant);
        CHECK(is_word(left.grant, 300000) && is_word(left.borrowed, 1000000) && is_word(left.active, 1), "whole words");
        CHECK_EQUAL(left.unattributed, round);
        start_arbiter_again();
    }
    int64_t before = now() / MS;
    tell("a " GPU " 30 elastic normal -\n.\n");
    WAIT_UNTIL((int64_t)ALIQUOT_GRANT_MS(read_agent("a", 1).active) > before, (void)0);
}

TEST(when_it_is_stopped_or_the_node_agent_ends_the_other_ones_values_stay) {
    start_arbiter();
    create_agent("a");
    tell("a " GPU " 30 elastic normal -\n.\n");
    WAIT_UNTIL(BORROWED("a") == 1000000 && ACTIVE("a") == 1, (void)0);
    CHECK(kill(arbiter, SIGSTOP) == 0 && waitpid(arbiter, NULL, WUNTRACED) == arbiter, "it stops");
    struct aliquot_agent_device stopped = read_agent("a", 1);
    write_unattributed("a", 5);
    tell("a " GPU " 40 elastic normal -\n.\n");
    usleep(100000);
    struct aliquot_agent_device later = read_agent("a", 1);
    CHECK(later.grant == stopped.grant && later.active == stopped.active && later.borrowed == stopped.borrowed,
          "its words age");
    CHECK_EQUAL(later.unattributed, 5);
    kill(arbiter, SIGCONT);
    WAIT_UNTIL(GRANTED("a") == 400000 && read_agent("a", 1).active != stopped.active, (void)0);
    close(input); /* as the kernel does when the node agent is killed */
    CHECK_EQUAL(waitpid(arbiter, NULL, 0), arbiter);
    arbiter = 0;
    CHECK_EQUAL(read_agent("a", 1).unattributed, 5);
    CHECK_EQUAL(read_agent("a", 1).updated_ms, later.updated_ms);
}

static int open_files(void) {
    char path[64];
    int files = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)arbiter);
    DIR *all = opendir(path);
    CHECK(all != NULL, "%s", path);
    while (readdir(all) != NULL) {
        files++;
    }
    closedir(all);
    return files;
}

/* Its resident memory in pages. */
static long resident(void) {
    char path[64];
    long size, pages = -1;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)arbiter);
    FILE *statm = fopen(path, "re");
    CHECK(statm != NULL && fscanf(statm, "%ld %ld", &size, &pages) == 2, "%s", path);
    fclose(statm);
    return pages;
}

/* Nine at a time, in the same ten slots: each has been free in one list. */
TEST(five_thousand_containers_come_and_go_and_leave_no_open_file_no_memory_and_no_stale_word) {
    enum { SLOTS = 10, CONTAINERS = 5000, BETWEEN = 500 };
    long before = 0;
    char slot[16], list[SLOTS * 80];
    start_arbiter();
    create_agent("other");
    tell("other " OTHER_GPU " 30 fixed normal -\n.\n");
    WAIT_UNTIL(read_agent("other", 0).active != 0, (void)0);
    int files = open_files() - 1; /* without the other one's */
    int old = -1;
    for (int i = 0; i < CONTAINERS; i++) {
        snprintf(slot, sizeof slot, "slot-%d", i % SLOTS);
        unlink(path_of("agents", slot));
        unlink(path_of("regions", slot));
        create_agent(slot);
        work(slot, GPU);
        size_t length = 0;
        for (int j = i < SLOTS - 1 ? 0 : i - SLOTS + 2; j <= i; j++) {
            length += (size_t)snprintf(list + length, sizeof list - length, "slot-%d %s %d fixed normal -\n", j % SLOTS,
                                       GPU, 1 + j % 9);
        }
        tell(list);
        tell(".\n");
        if (i == 0) {
            old = open(path_of("agents", slot), O_RDONLY | O_CLOEXEC);
        }
        if (i % BETWEEN == 0) {
            WAIT_UNTIL(GRANTED(slot) == (uint32_t)(1 + i % 9) * 10000, (void)0);
            before = i <= BETWEEN ? resident() : before;
        }
    }
    WAIT_UNTIL(GRANTED(slot) == (uint32_t)(1 + (CONTAINERS - 1) % 9) * 10000, (void)0);
    CHECK(resident() <= before + 16, "%ld pages, %ld before", resident(), before);
    CHECK(open_files() <= files + 2 * SLOTS, "%d open files, %d without containers", open_files(), files);
    struct aliquot_agent gone;
    CHECK(pread(old, &gone, sizeof gone, 0) == sizeof gone, "the first one's file");
    CHECK(ALIQUOT_GRANT_SHARE(gone.device[1].grant) == 10000, "the first one's limit");
    CHECK(ALIQUOT_GRANT_MS(gone.device[1].active) < ALIQUOT_GRANT_MS(read_agent(slot, 1).active), "it has ended");
    uint64_t vanished = read_agent("other", 0).active; /* its GPU is in no list */
    tell(".\n");
    WAIT_UNTIL(open_files() == files, (void)0);
    CHECK_EQUAL(read_agent("other", 0).active, vanished);
}

/* Times in the future, counters that fall or jump, and entries that change places. */
TEST(false_figures_take_no_more_of_the_surplus_than_a_containers_own_cores) {
    unsigned random = 1;
    start_arbiter();
    create_agent("good");
    create_agent("bad");
    create_agent("free");
    tell("good " GPU " 40 elastic normal -\nbad " GPU " 30 fixed normal 0.0\nfree " GPU " 0 none normal 0.0\n.\n");
    int64_t start = now();
    while (now() - start < 800 * MS) {
        struct aliquot_device claim = {.wanted = rand_r(&random) % 2 ? UINT64_MAX : (uint64_t)now() + (1 << 30),
                                       .in_flight = rand_r(&random) % 2 ? INT64_MAX : (uint64_t)now(),
                                       .gpu_time = (uint64_t)rand_r(&random) << (rand_r(&random) % 33),
                                       .busy = (uint64_t)rand_r(&random) << 32,
                                       .throttled = (uint64_t)rand_r(&random) << 32};
        int index = rand_r(&random) % 2;
        write_device("bad", 1 - index, OTHER_GPU, claim);
        write_device("bad", index, GPU, claim);
        write_device("free", 0, GPU, claim);
        work("good", GPU);
        usleep(5000);
        CHECK(GRANTED("good") == 400000 || GRANTED("good") == 0, "%u", GRANTED("good"));
        CHECK(now() - start < 400 * MS || BORROWED("good") >= 290000, "%u", BORROWED("good"));
        CHECK(BORROWED("bad") == 0 && read_agent("free", 1).grant == 0, "a fixed one and one without a limit");
    }
    CHECK_EQUAL(GRANTED("bad"), 300000);
}
