/* Tests that the shim has no side effects in a process that uses CUDA: signals, environment, threads, descriptors. */
#include "sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <locale.h>

extern char **environ;

/* Triggers every action of the memory limit: success, refusal, a changed limit file, a fork. */
static void use_everything(void) {
    CUdeviceptr address = 0;
    size_t total = 0;
    use_device(0);
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CALL(cuDeviceTotalMem_v2, size_t *, CUdevice)(&total, 0), CUDA_SUCCESS);
    write_limits(200 * MIB, 0);
    usleep(150000);
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_SUCCESS);
    IN_CHILD({
        use_device(0);
        CHECK_EQUAL(allocate(&address, MIB), CUDA_SUCCESS);
    });
}

#define SIGNAL_BYTES 8 /* bytes of a mask that the kernel sets; glibc leaves the rest undefined */

static void on_signal(int number) {
    (void)number;
}

TEST(signal_handlers_masks_and_alternate_stacks_stay_as_the_program_set_them) {
    static struct sigaction set[65];
    static char memory[65536];
    sigset_t mask = {0}, found = {0};
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, found_stack;
    sandbox(100 * MIB, 0);
    for (int number = 1; number < 65; number++) {
        struct sigaction action = {.sa_flags = SA_RESTART | (number % 2 ? SA_NODEFER : 0)};
        action.sa_handler = number % 3 == 0 ? SIG_IGN : number % 3 == 1 ? on_signal : SIG_DFL;
        sigaddset(&action.sa_mask, SIGUSR2);
        if (number != SIGCHLD) { /* the test waits for children */
            sigaction(number, &action, NULL);
        }
        sigaction(number, NULL, &set[number]);
    }
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGRTMIN);
    CHECK(sigprocmask(SIG_SETMASK, &mask, NULL) == 0 && sigaltstack(&stack, NULL) == 0, "signals");
    use_everything();
    for (int number = 1; number < 65; number++) {
        struct sigaction now = {0};
        if (sigaction(number, NULL, &now) == 0) {
            CHECK(now.sa_handler == set[number].sa_handler && now.sa_flags == set[number].sa_flags &&
                      memcmp(&now.sa_mask, &set[number].sa_mask, SIGNAL_BYTES) == 0,
                  "signal %d", number);
        }
    }
    CHECK(sigprocmask(SIG_SETMASK, NULL, &found) == 0 && memcmp(&found, &mask, SIGNAL_BYTES) == 0, "the mask");
    CHECK(sigaltstack(NULL, &found_stack) == 0 && found_stack.ss_sp == memory, "the stack");
}

TEST(umask_environment_working_directory_and_locale_stay_unchanged) {
    char folder[4096];
    sandbox(100 * MIB, 0);
    umask(0123);
    CHECK(chdir("/usr") == 0, "/usr");
    setenv("MINE", "1", 1);
    char **variables = environ;
    size_t count = 0;
    while (variables[count] != NULL) {
        count++;
    }
    char *last = variables[count - 1];
    use_everything();
    CHECK_EQUAL(umask(0), 0123);
    CHECK(getcwd(folder, sizeof folder) != NULL && strcmp(folder, "/usr") == 0, "%s", folder);
    CHECK(environ == variables && variables[count - 1] == last && variables[count] == NULL, "the environment");
    CHECK(strcmp(setlocale(LC_ALL, NULL), "C") == 0, "%s", setlocale(LC_ALL, NULL));
}

static size_t entries_of(const char *path) {
    size_t count = 0;
    DIR *folder = opendir(path);
    CHECK(folder != NULL, "%s", path);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

TEST(no_thread_and_no_descriptor_is_left_and_nothing_is_printed) {
    int ends[2], out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    char text[256];
    sandbox(100 * MIB, 0);
    sandbox_function("cuInit");
    CHECK(pipe(ends) == 0, "pipe");
    size_t descriptors = entries_of("/proc/self/fd");
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    use_everything();
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    CHECK_EQUAL(entries_of("/proc/self/fd"), descriptors);
    CHECK_EQUAL(entries_of("/proc/self/task"), 1 + 2); /* itself, . and .. */
    close(ends[1]);
    CHECK_EQUAL(read(ends[0], text, sizeof text), 0);
}

TEST(a_program_without_free_descriptors_can_allocate_up_to_its_limit) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, MIB), CUDA_SUCCESS);
    while (open("/dev/null", O_RDONLY) >= 0) {
    }
    CHECK_EQUAL(errno, EMFILE);
    usleep(150000);
    CHECK_EQUAL(allocate(&address, 99 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
}

/* The version of dlsym that programs built before glibc 2.34 use. */
#if defined(__x86_64__)
void *old_dlsym(void *handle, const char *name);
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
#else
#define old_dlsym dlsym
#endif

TEST(dlsym_of_any_version_finds_the_hooks) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    CHECK(driver != NULL, "%s", dlerror());
    Dl_info info;
    void *found[] = {old_dlsym(driver, "cuMemAlloc_v2"), dlsym(driver, "cuMemAlloc_v2")};
    for (size_t i = 0; i < 2; i++) {
        CHECK(dladdr(found[i], &info) != 0 && strstr(info.dli_fname, "libaliquot") != NULL, "%s", info.dli_fname);
    }
    CHECK(old_dlsym(RTLD_DEFAULT, "realpath") == dlsym(RTLD_DEFAULT, "realpath"), "the default version");
}

TEST(symbol_versions_of_other_libraries_are_unchanged) {
    void *library = dlopen(getenv("VERSIONED_PATH"), RTLD_LAZY);
    CHECK(library != NULL, "%s", dlerror());
    CHECK_EQUAL(((int (*)(void))dlsym(library, "versioned"))(), 2); /* the default */
    CHECK_EQUAL(((int (*)(void))dlvsym(library, "versioned", "VERSION_1"))(), 1);
    CHECK_EQUAL(((int (*)(void))dlvsym(library, "versioned", "VERSION_2"))(), 2);
    CHECK(dlvsym(library, "versioned", "VERSION_3") == NULL, "no such version");
}
