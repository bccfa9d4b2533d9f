/* Tests of the simulation of time on one GPU that several processes share. */
#include "gpu_time.h"
#include "testing.h"

#include <signal.h>
#include <sys/mman.h>

enum { GPU_MIB = 100, SMS = 108 };

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

/* Checks that a value is within percent of the expected value. */
#define NEAR(expected, actual, percent)                                                                                \
    do {                                                                                                               \
        double near_expected = (double)(expected), near_actual = (double)(actual);                                     \
        if (near_actual < near_expected * (1 - (percent) / 100.0) ||                                                   \
            near_actual > near_expected * (1 + (percent) / 100.0)) {                                                   \
            fprintf(stderr, "%s:%d: %s is %.0f, expected %.0f within %d %%\n", __FILE__, __LINE__, #actual,            \
                    near_actual, near_expected, (int)(percent));                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static gpu_file *attach_to_gpu_number(unsigned number) {
    setenv("ALIQUOT_FAKE_SEED", "0", 1);
    gpu_file *gpu = open_gpu(number);
    CHECK(gpu_attach(gpu));
    return gpu;
}

static gpu_file *attach_to_gpu(void) {
    return attach_to_gpu_number(0);
}

static uint64_t submit(gpu_file *gpu, unsigned queue, uint64_t ns, unsigned sms, struct gpu_completion *mark) {
    const struct gpu_work work = {.ns = ns, .sms = sms, .queue = queue};
    uint64_t number = gpu_submit(gpu, &work, mark);
    CHECK(number != 0);
    return number;
}

static uint64_t completion_time(gpu_file *gpu, struct gpu_completion *mark) {
    gpu_wait(gpu, mark->number);
    CHECK(gpu_poll_completion(gpu, mark));
    CHECK(mark->at != 0);
    return mark->at;
}

static void work_takes_its_duration(void) {
    gpu_file *gpu = attach_to_gpu();
    struct gpu_completion first, last;
    uint64_t before = gpu_now();
    submit(gpu, 3, 0, 0, &first);
    for (int i = 0; i < 10; i++) {
        submit(gpu, 3, 500 * US, SMS, &last);
    }
    CHECK(!gpu_is_done(gpu, last.number));
    uint64_t end = completion_time(gpu, &last);
    CHECK(gpu_now() >= end);
    CHECK(completion_time(gpu, &first) >= before);
    NEAR(5 * MS, end - first.at, 2); /* the kernels arrive shortly after the first work item */
}

static void queues_overlap_while_multiprocessors_are_free(void) {
    gpu_file *gpu = attach_to_gpu();
    struct gpu_completion begin, narrow[3], wide;
    submit(gpu, 1, 0, 0, &begin);
    for (unsigned i = 0; i < 3; i++) {
        submit(gpu, 1 + i, 2 * MS, SMS / 3, &narrow[i]);
    }
    submit(gpu, 4, 1 * MS, SMS, &wide);
    uint64_t start = completion_time(gpu, &begin);
    for (unsigned i = 0; i < 3; i++) {
        NEAR(2 * MS, completion_time(gpu, &narrow[i]) - start, 3);
    }
    NEAR(3 * MS, completion_time(gpu, &wide) - start, 3);
}

/* Four of these fill a multiprocessor's instruction slots to 1 - 0.75^4. */
static void on_a_profile_kernels_of_few_warps_overlap_on_the_same_multiprocessors(void) {
    setenv("ALIQUOT_FAKE_PROFILE", "warps=16", 1);
    gpu_file *gpu = attach_to_gpu();
    struct gpu_completion begin, quarter[4];
    submit(gpu, 1, 0, 0, &begin);
    for (unsigned i = 0; i < 4; i++) {
        submit(gpu, 1 + i, 2 * MS, SMS / 4, &quarter[i]);
    }
    uint64_t start = completion_time(gpu, &begin);
    NEAR(2 * MS, completion_time(gpu, &quarter[0]) - start, 3);
    NEAR((uint64_t)(2 * MS / (1 - 0.75 * 0.75 * 0.75 * 0.75)), completion_time(gpu, &quarter[3]) - start, 3);
    NEAR(2 * MS, gpu_work_ns(gpu, 0), 1);
}

static void work_waits_for_its_dependencies(void) {
    gpu_file *gpu = attach_to_gpu();
    struct gpu_completion last;
    uint64_t first = submit(gpu, 1, 1 * MS, 1, NULL);
    submit(gpu, 40, 3 * MS, 1, NULL);
    const struct gpu_work behind = {.ns = 1 * MS, .sms = 1, .queue = 41, .after = {first}};
    struct gpu_completion mark;
    CHECK(gpu_submit(gpu, &behind, &mark) != 0);
    const struct gpu_work barrier = {.queue = 0, .flags = GPU_WORK_BARRIER};
    CHECK(gpu_submit(gpu, &barrier, &last) != 0);
    uint64_t barrier_end = completion_time(gpu, &last), end = completion_time(gpu, &mark);
    NEAR(1 * MS, end - barrier_end, 2); /* a barrier does not wait for queue 40 */
}

static void a_gate_blocks_its_queue_until_it_is_opened(void) {
    gpu_file *gpu = attach_to_gpu();
    struct gpu_completion behind;
    const struct gpu_work gate = {.queue = 5, .flags = GPU_WORK_GATE};
    uint64_t number = gpu_submit(gpu, &gate, NULL);
    submit(gpu, 5, 1 * MS, 1, &behind);
    gpu_wait(gpu, submit(gpu, 6, 5 * MS, 1, NULL));
    CHECK(!gpu_is_done(gpu, number));
    uint64_t opened = gpu_now();
    gpu_open_gate(gpu, number);
    CHECK(completion_time(gpu, &behind) >= opened + 1 * MS);
}

/* Keeps the GPU busy with work of ns each until it is killed, and adds up the completed time in a shared word. */
static pid_t spawn_tenant(uint64_t ns, uint64_t *got) {
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    gpu_file *gpu = attach_to_gpu();
    for (;;) {
        while (!gpu_has_queue_space(gpu, GPU_QUEUE_LENGTH - 100)) {
            gpu_wait_for_queue_space(gpu, GPU_QUEUE_LENGTH - 100);
        }
        gpu_wait(gpu, submit(gpu, 1, ns, SMS, NULL));
        __atomic_fetch_add(got, ns, __ATOMIC_RELAXED);
    }
}

static uint64_t *shared_words(void) {
    char path[] = "/tmp/aliquot-time-test-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && unlink(path) == 0 && ftruncate(fd, 4096) == 0);
    uint64_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(words != MAP_FAILED);
    return words;
}

static void kill_process(pid_t pid) {
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

static void two_processes_take_turns_and_measure_each_others_turns(void) {
    uint64_t *got = shared_words();
    pid_t other = spawn_tenant(100 * MS, &got[0]);
    gpu_file *gpu = attach_to_gpu();
    while (gpu_usage_history(gpu, -1, &(struct gpu_usage){0}, 1) == 0) { /* until the tenant runs */
        usleep(10000);
    }
    struct gpu_completion begin, last;
    submit(gpu, 1, 0, 0, &begin);
    submit(gpu, 1, 40 * MS, SMS, &last);
    uint64_t took = completion_time(gpu, &last) - completion_time(gpu, &begin);
    NEAR(78 * MS, took, 15); /* 20 slices of its own and 19 of the other process, unless that process wakes late */
    kill_process(other);
}

static void the_work_of_a_killed_process_is_discarded(void) {
    uint64_t *got = shared_words();
    pid_t other = spawn_tenant(10000 * MS, &got[0]);
    gpu_file *gpu = attach_to_gpu();
    while (gpu_usage_history(gpu, -1, &(struct gpu_usage){0}, 1) == 0) {
        usleep(10000);
    }
    kill_process(other);
    struct gpu_completion begin, last;
    submit(gpu, 1, 0, 0, &begin);
    submit(gpu, 1, 40 * MS, SMS, &last);
    uint64_t took = completion_time(gpu, &last) - completion_time(gpu, &begin);
    NEAR(40 * MS, took, 2);
}

static void a_full_queue_makes_its_process_wait(void) {
    gpu_file *gpu = attach_to_gpu();
    uint64_t begin = gpu_now();
    for (int i = 0; i < GPU_QUEUE_LENGTH + 10; i++) {
        while (!gpu_has_queue_space(gpu, 1)) {
            CHECK(i >= GPU_QUEUE_LENGTH);
            gpu_wait_for_queue_space(gpu, 1);
        }
        submit(gpu, 1, 1 * MS, SMS, NULL);
    }
    CHECK(gpu_now() - begin >= 9 * MS);
}

static void completions_keep_their_time_after_their_entry_is_reused(void) {
    gpu_file *gpu = attach_to_gpu();
    struct gpu_completion early, late;
    submit(gpu, 1, 0, 0, &early);
    for (int i = 0; i < 5 * GPU_QUEUE_LENGTH; i++) {
        while (!gpu_has_queue_space(gpu, 1)) {
            gpu_wait_for_queue_space(gpu, 1);
        }
        submit(gpu, 1, 1 * US, 1, NULL);
    }
    while (!gpu_has_queue_space(gpu, 1)) {
        gpu_wait_for_queue_space(gpu, 1);
    }
    submit(gpu, 1, 0, 0, &late);
    CHECK(completion_time(gpu, &late) - completion_time(gpu, &early) >= 5 * GPU_QUEUE_LENGTH * US);
}

/* Processes are killed at any instruction of the simulation; the other processes' work still completes in order. */
static void the_simulation_survives_kills_at_any_instruction(void) {
    uint64_t *got = shared_words();
    pid_t tenants[3];
    for (int i = 0; i < 3; i++) {
        tenants[i] = spawn_tenant(20 * US * (unsigned)(1 + i), &got[i]);
    }
    gpu_file *gpu = attach_to_gpu();
    unsigned seed = 7;
    for (int i = 0; i < 150; i++) {
        struct gpu_completion begin, last;
        usleep((unsigned)rand_r(&seed) % 3000);
        int victim = i % 3;
        kill_process(tenants[victim]);
        tenants[victim] = spawn_tenant(20 * US * (unsigned)(1 + victim), &got[victim]);
        submit(gpu, 1, 0, 0, &begin);
        submit(gpu, 2, 30 * US, 60, NULL);
        submit(gpu, 1, 50 * US, SMS, &last);
        uint64_t took = completion_time(gpu, &last) - completion_time(gpu, &begin);
        CHECK(took >= 40 * US && took < 60 * MS);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(got[i] > 0);
        kill_process(tenants[i]);
    }
    struct gpu_completion begin, last;
    submit(gpu, 1, 0, 0, &begin);
    submit(gpu, 1, 5 * MS, SMS, &last);
    uint64_t first = completion_time(gpu, &begin);
    NEAR(5 * MS, completion_time(gpu, &last) - first, 2);
}

static uint64_t submit_collective(gpu_file *gpu, uint64_t number, uint64_t ns, struct gpu_completion *mark) {
    const struct gpu_work work = {
        .ns = ns, .sms = 8, .queue = 1, .flags = GPU_WORK_COLLECTIVE, .after = {gpu_collective(number, 2)}};
    uint64_t submitted = gpu_submit(gpu, &work, mark);
    CHECK(submitted != 0);
    return submitted;
}

static void a_kernel_of_a_collective_waits_on_the_gpu_for_its_peer(void) {
    gpu_file *a = attach_to_gpu_number(0), *b = attach_to_gpu_number(1);
    for (uint64_t number = 1; number <= 200; number++) {
        struct gpu_completion first, second, behind;
        uint64_t start = gpu_now(), busy = gpu_busy_ns(a, -1), peers = gpu_busy_ns(b, -1);
        submit_collective(a, number, 1 * MS, &first);
        submit(a, 1, 500 * US, SMS, &behind);
        gpu_sleep_until(start + 5 * MS);
        CHECK(!gpu_is_done(a, first.number));
        submit(b, 1, 2 * MS, SMS, NULL);
        submit_collective(b, number, 3 * MS, &second);
        NEAR(8 * MS, completion_time(a, &first) - start, 1); /* 2 ms after the peer's launch, and its own duration */
        NEAR(10 * MS, completion_time(b, &second) - start, 1);
        NEAR(8500 * US, completion_time(a, &behind) - start, 1);
        NEAR(8500 * US, gpu_busy_ns(a, -1) - busy, 1); /* waiting keeps the GPU busy */
        NEAR(5 * MS, gpu_busy_ns(b, -1) - peers, 1);
    }
}

static void kernels_of_different_collectives_wait_forever(void) {
    gpu_file *a = attach_to_gpu_number(0), *b = attach_to_gpu_number(1);
    uint64_t first = submit_collective(a, 1, 1 * MS, NULL), second = submit_collective(b, 2, 1 * MS, NULL);
    gpu_sleep_until(gpu_now() + 50 * MS);
    CHECK(!gpu_is_done(a, first) && !gpu_is_done(b, second));
    submit_collective(b, 1, 1 * MS, NULL); /* behind the other one in its queue */
    gpu_sleep_until(gpu_now() + 50 * MS);
    CHECK(!gpu_is_done(a, first));
}

static int slot_of_this_process(gpu_file *gpu) {
    struct gpu_process processes[4];
    size_t count = gpu_processes(gpu, processes, 4);
    for (size_t i = 0; i < count; i++) {
        if ((pid_t)processes[i].pid == getpid()) {
            return processes[i].slot;
        }
    }
    return -2;
}

/* Runs collectives with a peer in another process, which sleeps before each; a third process uses one of the GPUs. */
static void collectives_of_two_processes_take_turns_with_a_third(void) {
    uint64_t *got = shared_words();
    pid_t peer = fork();
    if (peer == 0) {
        gpu_file *b = attach_to_gpu_number(1);
        open_gpu(0);
        for (uint64_t number = 1; number <= 21; number++) {
            gpu_sleep_until(gpu_now() + 10 * MS);
            gpu_wait(b, submit_collective(b, number, 1 * MS, NULL));
        }
        exit(0);
    }
    pid_t other = spawn_tenant(20 * MS, &got[0]);
    gpu_file *a = attach_to_gpu_number(0);
    open_gpu(1);
    while (gpu_usage_history(a, -1, &(struct gpu_usage){0}, 1) == 0) { /* until the third process runs */
        usleep(10000);
    }
    gpu_wait(a, submit_collective(a, 1, 1 * MS, NULL)); /* until both have started */
    int slot = slot_of_this_process(a);
    uint64_t start = gpu_now(), busy = gpu_busy_ns(a, slot);
    for (uint64_t number = 2; number <= 21; number++) {
        gpu_wait(a, submit_collective(a, number, 1 * MS, NULL));
    }
    uint64_t took = gpu_now() - start;
    /* Each takes 11 ms, and up to a time slice of the third process more; waiting uses half of the GPU. */
    CHECK(took >= 208 * MS && took <= 280 * MS);
    NEAR(took / 2, gpu_busy_ns(a, slot) - busy, 15);
    CHECK(waitpid(peer, NULL, 0) == peer);
    kill_process(other);
}

static void usage_is_reported_for_complete_periods_only(void) {
    gpu_file *gpu = attach_to_gpu();
    struct gpu_usage all[GPU_USAGE_PERIODS];
    EQUAL(0, gpu_usage_history(gpu, -1, all, GPU_USAGE_PERIODS));
    gpu_wait(gpu, submit(gpu, 1, 500 * MS, SMS, NULL));
    size_t count = gpu_usage_history(gpu, -1, all, GPU_USAGE_PERIODS);
    CHECK(count >= 2 && count <= 4);
    CHECK(all[1].busy_ns > GPU_USAGE_PERIOD_NS - 2 && all[1].copying_ns == 0);
    EQUAL(all[0].period - 1, all[1].period);
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(work_takes_its_duration),
        TEST(queues_overlap_while_multiprocessors_are_free),
        TEST(on_a_profile_kernels_of_few_warps_overlap_on_the_same_multiprocessors),
        TEST(work_waits_for_its_dependencies),
        TEST(a_gate_blocks_its_queue_until_it_is_opened),
        TEST(two_processes_take_turns_and_measure_each_others_turns),
        TEST(the_work_of_a_killed_process_is_discarded),
        TEST(a_full_queue_makes_its_process_wait),
        TEST(completions_keep_their_time_after_their_entry_is_reused),
        TEST(the_simulation_survives_kills_at_any_instruction),
        TEST(a_kernel_of_a_collective_waits_on_the_gpu_for_its_peer),
        TEST(kernels_of_different_collectives_wait_forever),
        TEST(collectives_of_two_processes_take_turns_with_a_third),
        TEST(usage_is_reported_for_complete_periods_only),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 2, GPU_MIB);
}
