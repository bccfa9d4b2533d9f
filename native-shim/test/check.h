/*
 * A minimal framework for C tests. Each TEST in a program is a test case, named by a sentence about behavior.
 * `program NAME` runs that test, as CTest does; `program` runs all. Each test runs in its own process and ends at the
 * first failed check.
 */
#ifndef ALIQUOT_CHECK_H
#define ALIQUOT_CHECK_H

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_SKIPPED 77 /* CTest's SKIP_RETURN_CODE */

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80 /* glibc 2.36 */
#endif

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

/* The test's later children run in a time namespace whose clocks are so many seconds ahead. */
__attribute__((unused)) static void check_time_namespace(int seconds) {
    if (unshare(CLONE_NEWTIME) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWTIME) != 0) {
        SKIP("no time namespaces here: %m");
    }
    FILE *offsets = fopen("/proc/self/timens_offsets", "we");
    CHECK(offsets != NULL && fprintf(offsets, "monotonic %d 0", seconds) > 0 && fclose(offsets) == 0, "%m");
}

/* Copies a file, except for its holes: a simulated GPU is a file of many MiB, nearly all of which are holes. */
static int check_copy(const char *from, const char *to) {
    struct stat state;
    int source = open(from, O_RDONLY | O_CLOEXEC), copy = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    int failed = source < 0 || copy < 0 || fstat(source, &state) != 0 || fchmod(copy, state.st_mode) != 0 ||
                 ftruncate(copy, state.st_size) != 0;
    for (off_t data = 0; !failed && (data = lseek(source, data, SEEK_DATA)) >= 0;) {
        off_t hole = lseek(source, data, SEEK_HOLE);
        failed = lseek(copy, data, SEEK_SET) != data;
        while (!failed && data < hole) {
            failed = sendfile(copy, source, &data, (size_t)(hole - data)) <= 0;
        }
    }
    close(source);
    close(copy);
    return failed;
}

/* Copies the simulated GPUs of the folder, or removes the copies. */
static int check_gpus(const char *from, const char *to, int copies) {
    char source[1024], copy[1024];
    DIR *folder = opendir(from);
    int failed = folder == NULL;
    for (struct dirent *file; folder != NULL && (file = readdir(folder)) != NULL;) {
        snprintf(source, sizeof source, "%s/%s", from, file->d_name);
        snprintf(copy, sizeof copy, "%s/%s", to, file->d_name);
        if (file->d_type == DT_REG) {
            failed |= copies ? check_copy(source, copy) : unlink(copy);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return failed;
}

/*
 * Runs a test in a child that leads a process group, and kills the group at the end: a process that a failed test left
 * running would keep the output open, and CTest would wait for it. If ALIQUOT_TEST_GPUS names a folder of simulated
 * GPUs, the test has copies of them for itself, so that tests can run at the same time.
 */
static int check_run(const struct check_case *test) {
    const char *gpus = getenv("ALIQUOT_TEST_GPUS");
    char copies[] = "/tmp/aliquot-test-gpus-XXXXXX";
    if (gpus != NULL && (mkdtemp(copies) == NULL || chmod(copies, 0755) != 0 || check_gpus(gpus, copies, 1) != 0)) {
        perror("cannot copy the simulated GPUs");
        return EXIT_FAILURE;
    }
    fflush(NULL);
    pid_t runner = getpid(), child = fork();
    if (child == 0) {
        if (gpus != NULL) {
            setenv("ALIQUOT_FAKE_GPUS", copies, 1);
            unsetenv("ALIQUOT_TEST_GPUS"); /* a program that the test starts uses the same GPUs */
        }
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
    if (gpus != NULL) {
        (void)check_gpus(gpus, copies, 0);
        (void)rmdir(copies);
    }
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
