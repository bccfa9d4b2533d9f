/*
 * The least a C test needs. A test binary holds cases, each a TEST whose name is a sentence; `binary NAME` runs that
 * one (CTest runs each in a process of its own), `binary` alone runs all, each in a child. A failed check ends its
 * case.
 */
#ifndef ALIQUOT_CHECK_H
#define ALIQUOT_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Like a test, but only for other tests to start by its name. */
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

#define CHECK_EQUAL(found, wanted)                                                                                     \
    do {                                                                                                               \
        long long check_found = (long long)(found), check_wanted = (long long)(wanted);                                \
        if (check_found != check_wanted) {                                                                             \
            fprintf(stderr, "%s:%d: %s: expected %lld (%s), found %lld\n", __FILE__, __LINE__, #found, check_wanted,   \
                    #wanted, check_found);                                                                             \
            exit(EXIT_FAILURE);                                                                                        \
        }                                                                                                              \
    } while (0)

#define SKIP(...)                                                                                                      \
    do {                                                                                                               \
        fprintf(stderr, "skipped: " __VA_ARGS__);                                                                      \
        fprintf(stderr, "\n");                                                                                         \
        exit(CHECK_SKIPPED);                                                                                           \
    } while (0)

static int check_run_in_child(const struct check_case *test) {
    pid_t child = fork();
    if (child == 0) {
        test->run();
        exit(EXIT_SUCCESS);
    }
    int status = 0;
    waitpid(child, &status, 0);
    int failed = status != 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIPPED);
    printf("%s %s\n", failed ? "FAILED" : "passed", test->name);
    return failed;
}

int main(int argc, char **argv) {
    int failed = 0;
    int found = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const struct check_case *test = check_cases; test != NULL; test = test->next) {
        if (argc > 1 && strcmp(argv[1], test->name) == 0) {
            test->run();
            return EXIT_SUCCESS;
        }
        if (argc == 1) {
            found = 1;
            failed |= check_run_in_child(test);
        }
    }
    if (!found) {
        fprintf(stderr, "no such test: %s\n", argc > 1 ? argv[1] : "none at all");
    }
    return failed || !found;
}

#endif
