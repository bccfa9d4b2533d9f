/* The virtual clock, preloaded into this. */
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

/* Before anything looks at the clock. Calls take no time here, so that times are exact. */
static void begin(const char *participants) {
    int fd = mkstemp(clock_path);
    CHECK(fd >= 0, "no file for the clock");
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

static void sleep_until(uint64_t when) {
    const struct timespec time = {.tv_sec = (time_t)(when / SECOND), .tv_nsec = (long)(when % SECOND)};
    CHECK_EQUAL(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL), 0);
}

/* What the processes of a test write down, in the order in which they do. */
struct log {
    uint32_t count;
    struct {
        char who;
        uint64_t when;
    } lines[1000];
};

static struct log *make_log(void) {
    struct log *log = mmap(NULL, sizeof *log, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(log != MAP_FAILED, "no memory");
    return log;
}

static void note(struct log *log, char who) {
    uint32_t line = __atomic_fetch_add(&log->count, 1, __ATOMIC_SEQ_CST);
    CHECK(line < 1000, "log too long");
    log->lines[line].who = who;
    log->lines[line].when = now();
}

TEST(an_hour_passes_at_once) {
    begin("1");
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
    CHECK(real_now() - really < 10 * SECOND, "it took as long as that");
}

TEST(without_a_file_time_is_real) {
    uint64_t before = now(), really = real_now();
    usleep(20000);
    CHECK(now() - before >= 20 * MS && real_now() - really >= 20 * MS, "no real time passed");
}

TEST(thousands_of_sleeps_take_a_second) {
    begin("1");
    uint64_t really = real_now(), start = now();
    for (int i = 0; i < 20000; i++) {
        sleep_until(now() + 1 * MS);
    }
    CHECK_EQUAL(now() - start, 20 * SECOND);
    CHECK(real_now() - really < 8 * SECOND, "20,000 sleeps took %llu ms",
          (unsigned long long)((real_now() - really) / MS));
}

struct walker {
    struct log *log;
    char who;
    uint64_t step;
    int steps;
};

static void *walk(void *data) {
    const struct walker *walker = data;
    for (int i = 0; i < walker->steps; i++) {
        sleep_until(now() + walker->step);
        note(walker->log, walker->who);
    }
    return NULL;
}

static void check_log(const struct log *log, const char *expected) {
    char found[1001] = "";
    for (uint32_t i = 0; i < log->count; i++) {
        found[i] = log->lines[i].who;
        CHECK(i == 0 || log->lines[i].when >= log->lines[i - 1].when, "time went back");
    }
    CHECK(strcmp(found, expected) == 0, "found %s, expected %s", found, expected);
}

TEST(threads_go_on_in_the_order_of_their_wakings) {
    begin("1");
    struct log *log = make_log();
    struct walker walkers[] = {{log, 'a', 3 * MS, 5}, {log, 'b', 5 * MS, 3}, {log, 'c', 3 * MS, 5}};
    pthread_t threads[3];
    uint64_t start = now();
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, walk, &walkers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_EQUAL(now() - start, 15 * MS);
    check_log(log, "acbacacbacabc"); /* at 3, 5, 6, 9, 10, 12 and 15 ms */
}

TEST(whoever_joins_goes_on_when_the_thread_ends) {
    begin("1");
    struct log *log = make_log();
    struct walker slow = {log, 's', 2 * MS, 100}, quick = {log, 'q', 1 * MS, 7};
    pthread_t one, other;
    uint64_t start = now();
    pthread_create(&one, NULL, walk, &slow);
    pthread_create(&other, NULL, walk, &quick);
    pthread_join(other, NULL);
    CHECK_EQUAL(now() - start, 7 * MS);
    pthread_join(one, NULL);
    CHECK_EQUAL(now() - start, 200 * MS);
}

TEST(forked_children_share_the_clock) {
    begin("1");
    struct log *log = make_log();
    struct walker walkers[] = {{log, 'x', 4 * MS, 3}, {log, 'y', 6 * MS, 2}, {log, 'z', 12 * MS, 1}};
    uint64_t start = now();
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            walk(&walkers[i]);
            _exit(0);
        }
    }
    sleep_until(start + 100 * MS);
    check_log(log, "xyxxyz"); /* at 4, 6, 8 and 12 ms */
    for (int i = 0; i < 3; i++) {
        CHECK(wait(NULL) > 0, "a child is missing");
    }
}

TEST(whoever_is_killed_stops_nobody) {
    begin("1");
    uint64_t start = now(), really = real_now();
    pid_t child = fork();
    if (child == 0) {
        sleep_until(start + 1 * MS);
        kill(getpid(), SIGKILL); /* at work, so that time stands still */
    }
    sleep(1);
    CHECK_EQUAL(now() - start, 1 * SECOND);
    CHECK(real_now() - really < 20 * SECOND, "it was noticed too late");
    CHECK_EQUAL(waitpid(child, NULL, 0), child);
}

TEST(who_waits_by_looking_gets_there) {
    begin("1");
    setenv("ALIQUOT_VIRTUAL_TIME_TICK", "100", 1);
    struct log *log = make_log();
    struct walker walker = {log, 'w', 1 * MS, 5};
    pthread_t thread;
    pthread_create(&thread, NULL, walk, &walker);
    uint64_t end = now() + 20 * MS, late = now() + 30 * SECOND;
    while (now() < end) {
    }
    while (__atomic_load_n(&log->count, __ATOMIC_SEQ_CST) < 5) {
        CHECK(now() < late, "the other thread was not let in");
    }
    pthread_join(thread, NULL);
}

HELPER(participant) {
    uint64_t start = now();
    sleep(5);
    printf("%llu\n", (unsigned long long)(now() - start));
}

/* Another program with the same clock; its output is what it slept. */
static FILE *start_participant(void) {
    char command[5000], program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    CHECK(length > 0, "who am I?");
    program[length] = '\0';
    snprintf(command, sizeof command, "exec '%s' participant", program);
    FILE *output = popen(command, "r");
    CHECK(output != NULL, "cannot start it");
    return output;
}

static uint64_t result_of(FILE *output) {
    unsigned long long slept = 0;
    CHECK(fscanf(output, "%llu", &slept) == 1, "no answer");
    pclose(output);
    return slept;
}

TEST(time_stands_still_until_all_have_come) {
    begin("3"); /* this process looks at no clock */
    FILE *one = start_participant(), *two = start_participant();
    const struct timespec moment = {.tv_nsec = 300 * 1000000L};
    syscall(SYS_nanosleep, &moment, NULL);
    FILE *three = start_participant();
    CHECK_EQUAL(result_of(one), 5 * SECOND);
    CHECK_EQUAL(result_of(two), 5 * SECOND);
    CHECK_EQUAL(result_of(three), 5 * SECOND);
}
