/* Time on one GPU file that several processes share: what runs when. */
#include "gpu_time.h"
#include "testing.h"

#include <signal.h>
#include <sys/mman.h>

enum { GPU_MIB = 100, SMS = 108 };

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

/* Within so many percent of what is expected, plus what a busy machine wakes late. */
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

static gpu_file *attach(void) {
    setenv("ALIQUOT_FAKE_SEED", "0", 1);
    gpu_file *gpu = open_gpu(0);
    CHECK(gpu_attach(gpu));
    return gpu;
}

static uint64_t put(gpu_file *gpu, unsigned queue, uint64_t ns, unsigned sms, struct gpu_mark *mark) {
    const struct gpu_work work = {.ns = ns, .sms = sms, .queue = queue};
    uint64_t number = gpu_put(gpu, &work, mark);
    CHECK(number != 0);
    return number;
}

static uint64_t over_at(gpu_file *gpu, struct gpu_mark *mark) {
    gpu_wait(gpu, mark->number);
    CHECK(gpu_look(gpu, mark));
    CHECK(mark->at != 0);
    return mark->at;
}

static void work_takes_its_time_and_not_less(void) {
    gpu_file *gpu = attach();
    struct gpu_mark first, last;
    uint64_t before = gpu_now();
    put(gpu, 3, 0, 0, &first);
    for (int i = 0; i < 10; i++)
        put(gpu, 3, 500 * US, SMS, &last);
    CHECK(!gpu_is_done(gpu, last.number));
    uint64_t end = over_at(gpu, &last);
    CHECK(gpu_now() >= end);
    CHECK(over_at(gpu, &first) >= before);
    NEAR(5 * MS, end - first.at, 2); /* the first came a moment after the mark */
}

static void queues_overlap_as_far_as_there_are_multiprocessors(void) {
    gpu_file *gpu = attach();
    struct gpu_mark begin, narrow[3], wide;
    put(gpu, 1, 0, 0, &begin);
    for (unsigned i = 0; i < 3; i++)
        put(gpu, 1 + i, 2 * MS, SMS / 3, &narrow[i]);
    put(gpu, 4, 1 * MS, SMS, &wide);
    uint64_t start = over_at(gpu, &begin);
    for (unsigned i = 0; i < 3; i++)
        NEAR(2 * MS, over_at(gpu, &narrow[i]) - start, 3);
    NEAR(3 * MS, over_at(gpu, &wide) - start, 3);
}

static void work_waits_for_what_it_depends_on(void) {
    gpu_file *gpu = attach();
    struct gpu_mark last;
    uint64_t first = put(gpu, 1, 1 * MS, 1, NULL);
    put(gpu, 40, 3 * MS, 1, NULL);
    const struct gpu_work behind = {.ns = 1 * MS, .sms = 1, .queue = 41, .after = {first}};
    struct gpu_mark mark;
    CHECK(gpu_put(gpu, &behind, &mark) != 0);
    const struct gpu_work barrier = {.queue = 0, .flags = GPU_WORK_BARRIER};
    CHECK(gpu_put(gpu, &barrier, &last) != 0);
    uint64_t barrier_end = over_at(gpu, &last), end = over_at(gpu, &mark);
    NEAR(1 * MS, end - barrier_end, 2); /* queue 40 is none of those that a barrier waits for */
}

static void a_gate_holds_its_queue_until_it_is_opened(void) {
    gpu_file *gpu = attach();
    struct gpu_mark behind;
    const struct gpu_work gate = {.queue = 5, .flags = GPU_WORK_GATE};
    uint64_t number = gpu_put(gpu, &gate, NULL);
    put(gpu, 5, 1 * MS, 1, &behind);
    gpu_wait(gpu, put(gpu, 6, 5 * MS, 1, NULL));
    CHECK(!gpu_is_done(gpu, number));
    uint64_t opened = gpu_now();
    gpu_open_gate(gpu, number);
    CHECK(over_at(gpu, &behind) >= opened + 1 * MS);
}

/* Keeps the GPU busy with work of so many ns until it is killed, and tells how much it got done in a shared word. */
static pid_t tenant(uint64_t ns, uint64_t *got) {
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    gpu_file *gpu = attach();
    for (;;) {
        while (!gpu_has_room(gpu, GPU_QUEUE_LENGTH - 100))
            gpu_wait_for_room(gpu, GPU_QUEUE_LENGTH - 100);
        gpu_wait(gpu, put(gpu, 1, ns, SMS, NULL));
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

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

static void two_tenants_take_turns_and_see_each_other_in_their_times(void) {
    uint64_t *got = shared_words();
    pid_t other = tenant(100 * MS, &got[0]);
    gpu_file *gpu = attach();
    while (gpu_usage_history(gpu, -1, &(struct gpu_usage){0}, 1) == 0) /* it has begun */
        usleep(10000);
    struct gpu_mark begin, last;
    put(gpu, 1, 0, 0, &begin);
    put(gpu, 1, 40 * MS, SMS, &last);
    uint64_t took = over_at(gpu, &last) - over_at(gpu, &begin);
    NEAR(78 * MS, took, 15); /* twenty slices of its own, nineteen of the other's between, unless that wakes late */
    end(other);
}

static void the_work_of_a_killed_tenant_vanishes(void) {
    uint64_t *got = shared_words();
    pid_t other = tenant(10000 * MS, &got[0]);
    gpu_file *gpu = attach();
    while (gpu_usage_history(gpu, -1, &(struct gpu_usage){0}, 1) == 0)
        usleep(10000);
    end(other);
    struct gpu_mark begin, last;
    put(gpu, 1, 0, 0, &begin);
    put(gpu, 1, 40 * MS, SMS, &last);
    uint64_t took = over_at(gpu, &last) - over_at(gpu, &begin);
    NEAR(40 * MS, took, 2);
}

static void a_full_queue_makes_its_process_wait(void) {
    gpu_file *gpu = attach();
    uint64_t begin = gpu_now();
    for (int i = 0; i < GPU_QUEUE_LENGTH + 10; i++) {
        while (!gpu_has_room(gpu, 1)) {
            CHECK(i >= GPU_QUEUE_LENGTH);
            gpu_wait_for_room(gpu, 1);
        }
        put(gpu, 1, 1 * MS, SMS, NULL);
    }
    CHECK(gpu_now() - begin >= 9 * MS);
}

static void marks_remember_long_after_their_place_was_used_again(void) {
    gpu_file *gpu = attach();
    struct gpu_mark early, late;
    put(gpu, 1, 0, 0, &early);
    for (int i = 0; i < 5 * GPU_QUEUE_LENGTH; i++) {
        while (!gpu_has_room(gpu, 1))
            gpu_wait_for_room(gpu, 1);
        put(gpu, 1, 1 * US, 1, NULL);
    }
    while (!gpu_has_room(gpu, 1))
        gpu_wait_for_room(gpu, 1);
    put(gpu, 1, 0, 0, &late);
    CHECK(over_at(gpu, &late) - over_at(gpu, &early) >= 5 * GPU_QUEUE_LENGTH * US);
}

/* Players die at any instruction: whatever they leave, the others' work goes on, in order and to the end. */
static void players_may_be_killed_at_any_moment(void) {
    uint64_t *got = shared_words();
    pid_t tenants[3];
    for (int i = 0; i < 3; i++)
        tenants[i] = tenant(20 * US * (unsigned)(1 + i), &got[i]);
    gpu_file *gpu = attach();
    unsigned seed = 7;
    for (int i = 0; i < 150; i++) {
        struct gpu_mark begin, last;
        usleep((unsigned)rand_r(&seed) % 3000);
        int victim = i % 3;
        end(tenants[victim]);
        tenants[victim] = tenant(20 * US * (unsigned)(1 + victim), &got[victim]);
        put(gpu, 1, 0, 0, &begin);
        put(gpu, 2, 30 * US, 60, NULL);
        put(gpu, 1, 50 * US, SMS, &last);
        uint64_t took = over_at(gpu, &last) - over_at(gpu, &begin);
        CHECK(took >= 40 * US && took < 60 * MS);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(got[i] > 0);
        end(tenants[i]);
    }
    struct gpu_mark begin, last;
    put(gpu, 1, 0, 0, &begin);
    put(gpu, 1, 5 * MS, SMS, &last);
    uint64_t first = over_at(gpu, &begin);
    NEAR(5 * MS, over_at(gpu, &last) - first, 2);
}

static void usage_is_known_for_whole_periods_only(void) {
    gpu_file *gpu = attach();
    struct gpu_usage all[GPU_USAGE_PERIODS];
    EQUAL(0, gpu_usage_history(gpu, -1, all, GPU_USAGE_PERIODS));
    gpu_wait(gpu, put(gpu, 1, 500 * MS, SMS, NULL));
    size_t count = gpu_usage_history(gpu, -1, all, GPU_USAGE_PERIODS);
    CHECK(count >= 2 && count <= 4);
    CHECK(all[1].busy_ns > GPU_USAGE_PERIOD_NS - 2 && all[1].copying_ns == 0);
    EQUAL(all[0].period - 1, all[1].period);
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(work_takes_its_time_and_not_less),
        TEST(queues_overlap_as_far_as_there_are_multiprocessors),
        TEST(work_waits_for_what_it_depends_on),
        TEST(a_gate_holds_its_queue_until_it_is_opened),
        TEST(two_tenants_take_turns_and_see_each_other_in_their_times),
        TEST(the_work_of_a_killed_tenant_vanishes),
        TEST(a_full_queue_makes_its_process_wait),
        TEST(marks_remember_long_after_their_place_was_used_again),
        TEST(players_may_be_killed_at_any_moment),
        TEST(usage_is_known_for_whole_periods_only),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 1, GPU_MIB);
}
