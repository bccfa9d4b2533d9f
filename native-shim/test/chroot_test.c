/*
 * Tests that a program in a container is limited whatever root folder it changes to. A test makes a folder that looks
 * like a container's root, and another one below it in which the container has whole cards, and starts this program
 * in the first. That needs CAP_SYS_CHROOT, as user 0 of a container has it, or a user namespace.
 */
#include "sandbox.h"

#include <errno.h>
#include <libgen.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>

#define PROGRAM "/lib/program"
#define GPU "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001"
#define WHOLE_CARD GPU " memory=4000Mi cores=100 exclusive\n"

static char root[] = "/tmp/aliquot-root-XXXXXX";

static void make_folders(const char *prefix) {
    static const char *const folders[] = {"", "/etc", "/etc/aliquot", "/usr", "/usr/local", "/usr/local/aliquot"};
    char path[256];
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s%s", prefix, folders[i]);
        CHECK(mkdir(path, 0755) == 0 || errno == EEXIST, "%s", path);
    }
}

/* The files of a container, below a folder. */
static void make_container(const char *prefix, const char *limits, uint32_t holds) {
    struct aliquot_agent agent = {.header = ALIQUOT_AGENT_HEADER};
    char path[256];
    agent.header.holds = holds;
    make_folders(prefix);
    snprintf(path, sizeof path, "%s/etc/aliquot/vgpu", prefix);
    write_file(path, limits, strlen(limits));
    snprintf(path, sizeof path, "%s/usr/local/aliquot/region", prefix);
    write_file(path, "", 0);
    snprintf(path, sizeof path, "%s/usr/local/aliquot/agent", prefix);
    write_file(path, &agent, sizeof agent);
}

static int copy_library(struct dl_phdr_info *library, size_t size, void *unused) {
    char name[256], path[512];
    (void)size, (void)unused;
    if (library->dlpi_name[0] == '/') {
        snprintf(name, sizeof name, "%s", library->dlpi_name);
        snprintf(path, sizeof path, "%s/lib/%s", root, basename(name));
        CHECK_EQUAL(check_copy(library->dlpi_name, path), 0);
        chmod(path, 0755);
    }
    return 0;
}

static void remove_root(void) {
    char command[64];
    snprintf(command, sizeof command, "LD_PRELOAD= rm -rf %s", root);
    CHECK_EQUAL(system(command), 0);
}

/* Runs a HELPER in a container with these limits, whose agent has said what it holds; 0: nothing. */
static void run_in_container(const char *helper, const char *limits, uint32_t holds) {
    char path[64], from[64];
    CHECK(mkdtemp(root) != NULL && chmod(root, 0755) == 0, "%s", root);
    atexit(remove_root);
    make_container(root, limits, holds);
    snprintf(path, sizeof path, "%s/x", root);
    make_container(path, WHOLE_CARD, ALIQUOT_AGENT_HOLDS_WHOLE_CARDS);
    snprintf(path, sizeof path, "%s/empty", root);
    CHECK(mkdir(path, 0755) == 0, "%s", path);
    snprintf(path, sizeof path, "%s/lib", root);
    CHECK(mkdir(path, 0755) == 0, "%s", path);
    snprintf(from, sizeof from, "%s/lib64", root);
    CHECK(symlink("lib", from) == 0, "%s", from);
    CHECK(dlopen("libcuda.so.1", RTLD_LAZY) != NULL, "%s", dlerror());
    dl_iterate_phdr(copy_library, NULL);
    snprintf(path, sizeof path, "%s%s", root, PROGRAM);
    CHECK(check_copy("/proc/self/exe", path) == 0 && chmod(path, 0755) == 0, "%s", path);
    pid_t child = fork();
    if (child == 0) {
        if (chroot(root) != 0 && (unshare(CLONE_NEWUSER) != 0 || chroot(root) != 0)) {
            _exit(CHECK_SKIPPED);
        }
        CHECK(chdir("/") == 0, "/");
        setenv("LD_PRELOAD", "/lib/libaliquot.so", 1);
        setenv("LD_LIBRARY_PATH", "/lib", 1);
        setenv("IN_CONTAINER", "1", 1);
        unsetenv("ALIQUOT_CONFIG");
        execl(PROGRAM, PROGRAM, helper, NULL);
        _exit(EXIT_FAILURE);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIPPED) {
        SKIP("chroot is not permitted here");
    }
    CHECK_EQUAL(status, 0);
}

/* Start of every HELPER; started without a test, it ends at once. */
static void begin(void) {
    if (getenv("IN_CONTAINER") == NULL) {
        exit(EXIT_SUCCESS);
    }
    CHECK(dlopen("libcuda.so.1", RTLD_LAZY) != NULL, "%s", dlerror()); /* is not in the other folders */
}

static void enter(const char *folder) {
    CHECK(chroot(folder) == 0 && chdir("/") == 0, "chroot to %s: %s", folder, strerror(errno));
}

static void go_back(int old_root) {
    CHECK(fchdir(old_root) == 0 && chroot(".") == 0, "back: %s", strerror(errno));
}

static CUresult allocate_mib(size_t mib) {
    CUcontext context = NULL;
    CUdeviceptr address = 0;
    CUresult result = CALL(cuInit, unsigned)(0);
    result = result != CUDA_SUCCESS ? result : CALL(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&context, 0);
    result = result != CUDA_SUCCESS ? result : CALL(cuCtxSetCurrent, CUcontext)(context);
    return result != CUDA_SUCCESS ? result : allocate(&address, mib * MIB);
}

static bool is_hook(void *function) {
    Dl_info info;
    return dladdr(function, &info) != 0 && strstr(info.dli_fname, "libaliquot") != NULL;
}

static void look_again(void) {
    usleep(150000);
}

HELPER(resolves_in_another_root_and_returns) {
    begin();
    int old_root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enter("/x");
    CHECK(is_hook(sandbox_function("cuInit")) && is_hook(sandbox_function("cuMemAlloc_v2")), "a hook");
    go_back(old_root);
    CHECK_EQUAL(allocate_mib(101), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate_mib(100), CUDA_SUCCESS);
}

HELPER(uses_cuda_in_another_root) {
    begin();
    enter("/x");
    CHECK_EQUAL(allocate_mib(1), CUDA_ERROR_NOT_PERMITTED);
}

HELPER(uses_cuda_in_an_empty_root) {
    begin();
    enter("/empty");
    CHECK_EQUAL(allocate_mib(1), CUDA_ERROR_NOT_PERMITTED);
}

static void *use_cuda_in_another_root(void *unused) {
    CHECK(unshare(CLONE_FS) == 0, "unshare");
    enter("/x");
    CHECK_EQUAL(allocate_mib(1), CUDA_ERROR_NOT_PERMITTED);
    return unused;
}

HELPER(gives_one_thread_another_root) {
    pthread_t thread;
    begin();
    CHECK_EQUAL(pthread_create(&thread, NULL, use_cuda_in_another_root, NULL), 0);
    pthread_join(thread, NULL);
}

HELPER(finds_other_files_at_the_paths_later) {
    static const char more[] = GPU " memory=80000Mi cores=0\n", resized[] = GPU " memory=200Mi cores=0\n";
    begin();
    int old_root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_EQUAL(allocate_mib(1), CUDA_SUCCESS);
    write_file("/x/etc/aliquot/vgpu", more, sizeof more - 1);
    enter("/x");
    look_again();
    CHECK_EQUAL(allocate_mib(100), CUDA_ERROR_OUT_OF_MEMORY);
    go_back(old_root);
    CHECK(rename("/etc", "/old") == 0 && rename("/x/etc", "/etc") == 0, "rename");
    look_again();
    CHECK_EQUAL(allocate_mib(100), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(rename("/etc", "/x/etc") == 0 && rename("/old", "/etc") == 0, "rename");
    write_file("/etc/aliquot/vgpu", resized, sizeof resized - 1); /* by the kubelet */
    look_again();
    CHECK_EQUAL(allocate_mib(199), CUDA_SUCCESS);
    CHECK_EQUAL(allocate_mib(1), CUDA_ERROR_OUT_OF_MEMORY);
}

HELPER(puts_a_folder_over_every_descriptor) {
    begin();
    CHECK_EQUAL(allocate_mib(1), CUDA_SUCCESS);
    int other = open("/x/etc/aliquot", O_RDONLY | O_DIRECTORY);
    for (int fd = 3; fd < 1024; fd++) {
        dup2(other, fd);
    }
    write_file("/x/etc/aliquot/vgpu", WHOLE_CARD, sizeof WHOLE_CARD - 1);
    look_again();
    CHECK_EQUAL(allocate_mib(100), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate_mib(99), CUDA_SUCCESS);
}

static void say(uint32_t holds) {
    int fd = open("/usr/local/aliquot/agent", O_WRONLY | O_CLOEXEC);
    CHECK(pwrite(fd, &holds, sizeof holds, offsetof(struct aliquot_agent_header, holds)) == sizeof holds, "agent");
    close(fd);
}

HELPER(has_whole_cards_before_the_agent_says_so) {
    begin();
    CHECK(is_hook(sandbox_function("cuMemAlloc_v2")), "a hook");
    CHECK_EQUAL(allocate_mib(4001), CUDA_SUCCESS); /* more than the limit file gives: managed memory may be */
    IN_CHILD(begin(); CHECK(is_hook(sandbox_function("cuMemAlloc_v2")), "a hook"));
    say(ALIQUOT_AGENT_HOLDS_WHOLE_CARDS);
    look_again();
    CHECK_EQUAL(allocate_mib(1), CUDA_SUCCESS);
    CHECK(!is_hook(sandbox_function("cuMemAlloc_v2")), "the driver's function");
    say(ALIQUOT_AGENT_HOLDS_SHARES);
    look_again();
    CHECK_EQUAL(allocate_mib(4001), CUDA_SUCCESS);
}

HELPER(has_shares_and_says_that_it_has_whole_cards) {
    begin();
    CHECK_EQUAL(allocate_mib(1), CUDA_SUCCESS);
    say(ALIQUOT_AGENT_HOLDS_SHARES);
    look_again();
    CHECK_EQUAL(allocate_mib(101), CUDA_ERROR_OUT_OF_MEMORY); /* as the limit file says */
    CHECK_EQUAL(allocate_mib(100), CUDA_SUCCESS);
    CHECK(is_hook(sandbox_function("cuMemAlloc_v2")), "a hook");
    say(ALIQUOT_AGENT_HOLDS_WHOLE_CARDS);
    look_again();
    CHECK_EQUAL(allocate_mib(1), CUDA_ERROR_OUT_OF_MEMORY);
}

HELPER(is_limited_by_a_limit_file_that_changes_before_the_agent_has_spoken) {
    static const char share[] = GPU " memory=100Mi cores=0\n";
    begin();
    CHECK_EQUAL(allocate_mib(200), CUDA_SUCCESS);
    write_file("/etc/aliquot/vgpu", share, sizeof share - 1);
    look_again();
    CHECK_EQUAL(allocate_mib(101), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate_mib(100), CUDA_SUCCESS);
}

#define SHARE GPU " memory=100Mi cores=0\n"

TEST(a_program_that_resolves_functions_in_another_root_and_returns_is_limited) {
    run_in_container("resolves_in_another_root_and_returns", SHARE, ALIQUOT_AGENT_HOLDS_SHARES);
}

TEST(cuda_is_not_permitted_in_a_root_with_other_files_than_the_containers) {
    run_in_container("uses_cuda_in_another_root", SHARE, ALIQUOT_AGENT_HOLDS_SHARES);
}

TEST(cuda_is_not_permitted_in_a_root_without_the_containers_files) {
    run_in_container("uses_cuda_in_an_empty_root", SHARE, ALIQUOT_AGENT_HOLDS_SHARES);
}

TEST(a_thread_with_a_root_of_its_own_gets_no_other_limits) {
    run_in_container("gives_one_thread_another_root", SHARE, ALIQUOT_AGENT_HOLDS_SHARES);
}

TEST(a_limited_program_follows_the_limit_file_of_the_container_and_no_other) {
    run_in_container("finds_other_files_at_the_paths_later", SHARE, ALIQUOT_AGENT_HOLDS_SHARES);
}

TEST(a_program_that_replaces_all_descriptors_keeps_its_limits_and_can_allocate) {
    run_in_container("puts_a_folder_over_every_descriptor", SHARE, ALIQUOT_AGENT_HOLDS_SHARES);
}

TEST(whole_cards_are_whole_through_hooks_until_the_agent_says_so) {
    run_in_container("has_whole_cards_before_the_agent_says_so", WHOLE_CARD, 0);
}

TEST(whole_cards_are_not_believed_against_the_agent) {
    run_in_container("has_shares_and_says_that_it_has_whole_cards", GPU " memory=100Mi cores=0 exclusive\n", 0);
}

TEST(whole_cards_are_looked_at_again_until_the_agent_has_spoken) {
    run_in_container("is_limited_by_a_limit_file_that_changes_before_the_agent_has_spoken", WHOLE_CARD, 0);
}
