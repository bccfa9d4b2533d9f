/* Tests of the virtual clock, which is preloaded into this program. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static char clock_path[] = "/tmp/aliquot-virtual-time-XXXXXX";

static void remove_clock(void) {
    unlink(clock_path);
}

/* Sets up the clock, before the program first reads it. Reading the clock takes no time here, so times are exact. */
static void use_virtual_clock(const char *participants) {
    int fd = mkstemp(clock_path);
    CHECK(fd >= 0, "cannot create the clock file");
    close(fd);
    atexit(remove_clock);
    setenv("ALIQUOT_VIRTUAL_TIME", clock_path, 1);
    setenv("ALIQUOT_VIRTUAL_TIME_PARTICIPANTS", participants, 1);
    setenv("ALIQUOT_VIRTUAL_TIME_TICK", "0", 1);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static uint64_t real_now(void) {
    struct timespec time;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static void sleep_until(uint64_t wake_up) {
    const struct timespec time = {.tv_sec = (time_t)(wake_up / SECOND), .tv_nsec = (long)(wake_up % SECOND)};
    CHECK_EQUAL(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL), 0);
}

/* A log that the processes of a test share. */
struct log {
    uint32_t count;
    struct {
        char writer;
        uint64_t time;
    } lines[1000];
};

static struct log *make_log(void) {
    struct log *log = mmap(NULL, sizeof *log, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(log != MAP_FAILED, "mmap");
    return log;
}

static void write_log(struct log *log, char writer) {
    uint32_t line = __atomic_fetch_add(&log->count, 1, __ATOMIC_SEQ_CST);
    CHECK(line < 1000, "the log is full");
    log->lines[line].writer = writer;
    log->lines[line].time = now();
}

TEST(an_hour_of_sleep_takes_almost_no_real_time) {
    use_virtual_clock("1");
    uint64_t before = now(), really = real_now();
    CHECK_EQUAL(sleep(3600), 0);
    CHECK_EQUAL(now() - before, 3600 * SECOND);
    usleep(250);
    CHECK_EQUAL(now() - before, 3600 * SECOND + 250000);
    struct timespec wall, later;
    clock_gettime(CLOCK_REALTIME, &wall);
    sleep(1);
    clock_gettime(CLOCK_REALTIME, &later);
    CHECK_EQUAL(later.tv_sec - wall.tv_sec, 1);
    CHECK(real_now() - really < 10 * SECOND, "the sleep took real time");
}

TEST(without_a_clock_file_time_is_real) {
    uint64_t before = now(), really = real_now();
    usleep(20000);
    CHECK(now() - before >= 20 * MS && real_now() - really >= 20 * MS, "no real time passed");
}

TEST(twenty_thousand_sleeps_take_a_few_seconds) {
    use_virtual_clock("1");
    uint64_t really = real_now(), start = now();
    for (int i = 0; i < 20000; i++) {
        sleep_until(now() + 1 * MS);
    }
    CHECK_EQUAL(now() - start, 20 * SECOND);
    CHECK(real_now() - really < 8 * SECOND, "20,000 sleeps took %llu ms",
          (unsigned long long)((real_now() - really) / MS));
}

struct sleeper {
    struct log *log;
    char writer;
    uint64_t step;
    int steps;
};

static void *sleep_and_log(void *data) {
    const struct sleeper *sleeper = data;
    for (int i = 0; i < sleeper->steps; i++) {
        sleep_until(now() + sleeper->step);
        write_log(sleeper->log, sleeper->writer);
    }
    return NULL;
}

static void check_log(const struct log *log, const char *expected) {
    char found[1001] = "";
    for (uint32_t i = 0; i < log->count; i++) {
        found[i] = log->lines[i].writer;
        CHECK(i == 0 || log->lines[i].time >= log->lines[i - 1].time,
              "the time of an entry is before the previous one's");
    }
    CHECK(strcmp(found, expected) == 0, "found %s, expected %s", found, expected);
}

TEST(threads_continue_in_the_order_of_their_wake_up_times) {
    use_virtual_clock("1");
    struct log *log = make_log();
    struct sleeper sleepers[] = {{log, 'a', 3 * MS, 5}, {log, 'b', 5 * MS, 3}, {log, 'c', 3 * MS, 5}};
    pthread_t threads[3];
    uint64_t start = now();
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, sleep_and_log, &sleepers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_EQUAL(now() - start, 15 * MS);
    check_log(log, "acbacacbacabc"); /* at 3, 5, 6, 9, 10, 12 and 15 ms */
}

TEST(pthread_join_returns_when_the_thread_ends) {
    use_virtual_clock("1");
    struct log *log = make_log();
    struct sleeper slow = {log, 's', 2 * MS, 100}, quick = {log, 'q', 1 * MS, 7};
    pthread_t one, other;
    uint64_t start = now();
    pthread_create(&one, NULL, sleep_and_log, &slow);
    pthread_create(&other, NULL, sleep_and_log, &quick);
    pthread_join(other, NULL);
    CHECK_EQUAL(now() - start, 7 * MS);
    pthread_join(one, NULL);
    CHECK_EQUAL(now() - start, 200 * MS);
}

TEST(forked_children_share_the_clock) {
    use_virtual_clock("1");
    struct log *log = make_log();
    struct sleeper sleepers[] = {{log, 'x', 4 * MS, 3}, {log, 'y', 6 * MS, 2}, {log, 'z', 12 * MS, 1}};
    uint64_t start = now();
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            sleep_and_log(&sleepers[i]);
            _exit(0);
        }
    }
    sleep_until(start + 100 * MS);
    check_log(log, "xyxxyz"); /* at 4, 6, 8 and 12 ms */
    for (int i = 0; i < 3; i++) {
        CHECK(wait(NULL) > 0, "a child is missing");
    }
}

TEST(a_killed_process_does_not_stop_the_clock) {
    use_virtual_clock("1");
    uint64_t start = now(), really = real_now();
    pid_t child = fork();
    if (child == 0) {
        sleep_until(start + 1 * MS);
        kill(getpid(), SIGKILL); /* while it runs, so that the clock stands still */
    }
    sleep(1);
    CHECK_EQUAL(now() - start, 1 * SECOND);
    CHECK(real_now() - really < 20 * SECOND, "the clock continued too late");
    CHECK_EQUAL(waitpid(child, NULL, 0), child);
}

TEST(a_thread_that_polls_the_clock_makes_progress) {
    use_virtual_clock("1");
    setenv("ALIQUOT_VIRTUAL_TIME_TICK", "100", 1);
    struct log *log = make_log();
    struct sleeper sleeper = {log, 'w', 1 * MS, 5};
    pthread_t thread;
    pthread_create(&thread, NULL, sleep_and_log, &sleeper);
    uint64_t end = now() + 20 * MS, late = now() + 30 * SECOND;
    while (now() < end) {
    }
    while (__atomic_load_n(&log->count, __ATOMIC_SEQ_CST) < 5) {
        CHECK(now() < late, "the other thread does not run");
    }
    pthread_join(thread, NULL);
}

HELPER(participant) {
    uint64_t start = now();
    sleep(5);
    printf("%llu\n", (unsigned long long)(now() - start));
}

/* Starts another program with the same clock. It prints the time that it slept. */
static FILE *start_participant(void) {
    char command[5000], program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    CHECK(length > 0, "readlink");
    program[length] = '\0';
    snprintf(command, sizeof command, "exec '%s' participant", program);
    FILE *output = popen(command, "r");
    CHECK(output != NULL, "popen");
    return output;
}

static uint64_t result_of(FILE *output) {
    unsigned long long slept = 0;
    CHECK(fscanf(output, "%llu", &slept) == 1, "the participant printed nothing");
    pclose(output);
    return slept;
}

TEST(time_stands_still_until_all_participants_have_joined) {
    use_virtual_clock("3"); /* this process does not read the clock */
    FILE *one = start_participant(), *two = start_participant();
    const struct timespec moment = {.tv_nsec = 300 * 1000000L};
    syscall(SYS_nanosleep, &moment, NULL);
    FILE *three = start_participant();
    CHECK_EQUAL(result_of(one), 5 * SECOND);
    CHECK_EQUAL(result_of(two), 5 * SECOND);
    CHECK_EQUAL(result_of(three), 5 * SECOND);
}
