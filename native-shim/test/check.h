/*
 * A minimal framework for C tests. Each TEST in a program is a test case, named by a sentence about behavior.
 * `program NAME` runs that test, as CTest does; `program` runs all. Each test runs in its own process and ends at the
 * first failed check.
 */
#ifndef ALIQUOT_CHECK_H
#define ALIQUOT_CHECK_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_SKIPPED 77 /* CTest's SKIP_RETURN_CODE */

struct check_case {
    const char *name;
    void (*run)(void);
    struct check_case *next;
};

static struct check_case *check_cases;

#define TEST(name)                                                                                                     \
    static void name(void);                                                                                            \
    __attribute__((constructor)) static void check_add_##name(void) {                                                  \
        static struct check_case self = {#name, name, NULL};                                                           \
        self.next = check_cases;                                                                                       \
        check_cases = &self;                                                                                           \
    }                                                                                                                  \
    static void name(void)

/* A program that tests start by its name in a process of its own. It is not a test itself. */
#define HELPER(name) TEST(name)

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: expected %s", __FILE__, __LINE__, #condition);                                     \
            fprintf(stderr, "; " __VA_ARGS__);                                                                         \
            fprintf(stderr, "\n");                                                                                     \
            exit(EXIT_FAILURE);                                                                                        \
        }                                                                                                              \
    } while (0)

#define CHECK_EQUAL(found, expected)                                                                                   \
    do {                                                                                                               \
        long long check_found = (long long)(found), check_expected = (long long)(expected);                            \
        if (check_found != check_expected) {                                                                           \
            fprintf(stderr, "%s:%d: %s: expected %lld (%s), found %lld\n", __FILE__, __LINE__, #found, check_expected, \
                    #expected, check_found);                                                                           \
            exit(EXIT_FAILURE);                                                                                        \
        }                                                                                                              \
    } while (0)

#define SKIP(...)                                                                                                      \
    do {                                                                                                               \
        fprintf(stderr, "skipped: " __VA_ARGS__);                                                                      \
        fprintf(stderr, "\n");                                                                                         \
        exit(CHECK_SKIPPED);                                                                                           \
    } while (0)

/*
 * Runs a test in a child that leads a process group, and kills the group at the end: a process that a failed test left
 * running would keep the output open, and CTest would wait for it.
 */
static int check_run(const struct check_case *test) {
    fflush(NULL);
    pid_t runner = getpid(), child = fork();
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != runner) {
            _exit(EXIT_FAILURE); /* the parent ended before PR_SET_PDEATHSIG took effect */
        }
        test->run();
        exit(EXIT_SUCCESS);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("cannot run the test in a child process");
        return EXIT_FAILURE;
    }
    (void)kill(-child, SIGKILL);
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "the test was killed: %s\n", strsignal(WTERMSIG(status)));
        return EXIT_FAILURE;
    }
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    int failed = 0;
    int found = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const struct check_case *test = check_cases; test != NULL; test = test->next) {
        if (argc > 1 && strcmp(argv[1], test->name) == 0) {
            return check_run(test);
        }
        if (argc == 1) {
            int result = check_run(test);
            found = 1;
            failed |= result != EXIT_SUCCESS && result != CHECK_SKIPPED;
            printf("%s %s\n",
                   result == EXIT_SUCCESS    ? "passed"
                   : result == CHECK_SKIPPED ? "skipped"
                                             : "FAILED",
                   test->name);
        }
    }
    if (!found) {
        fprintf(stderr, "%s\n", argc > 1 ? "unknown test" : "the program contains no test");
    }
    return failed || !found;
}

#endif
