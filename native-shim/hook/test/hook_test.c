/*
 * Runs the hook as a runtime does, on real trees of files with real mounts: a node's files in /mnt/node, a bundle in
 * /mnt/bundle. Each test has a mount namespace of its own, and /mnt in it is a tmpfs, so a test leaves nothing behind.
 * Skipped where mounts are not permitted.
 */
#include "check.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>

#ifdef __aarch64__
#define GLIBC_LOADER "/lib/ld-linux-aarch64.so.1"
#define MUSL_LOADER "/lib/ld-musl-aarch64.so.1"
#else
#define GLIBC_LOADER "/lib64/ld-linux-x86-64.so.2"
#define MUSL_LOADER "/lib/ld-musl-x86_64.so.1"
#endif

#define NODE "/mnt/node"
#define BUNDLE "/mnt/bundle"
#define ROOT BUNDLE "/rootfs"
#define NIX_LOADER "/nix/store/00000000000000000000000000000000-glibc-2.40-66/lib/ld-linux.so"
#define UID "5d0c0f5e-6b4a-4f0e-8a57-0a1b2c3d4e5f"
#define CONTAINERD                                                                                                     \
    "\"io.kubernetes.cri.sandbox-uid\":\"" UID "\",\"io.kubernetes.cri.sandbox-namespace\":\"team\","                  \
    "\"io.kubernetes.cri.sandbox-name\":\"train-0\",\"io.kubernetes.cri.container-name\":\"main\""
#define CRI_O                                                                                                          \
    "\"io.kubernetes.pod.uid\":\"" UID "\",\"io.kubernetes.pod.namespace\":\"team\","                                  \
    "\"io.kubernetes.pod.name\":\"train-0\",\"io.kubernetes.container.name\":\"main\""
#define ANY_ARGUMENTS "--pod-uid", UID, "--namespace", "team", "--pod", "train-0", "--container", "main"
#define MOUNTS                                                                                                         \
    "--mount", NODE "/limits", "/etc/aliquot", "--mount", NODE "/ld.so.preload", "/etc/ld.so.preload", "--mount",      \
        NODE "/region", "/usr/local/aliquot/region"
#define ARGUMENTS ANY_ARGUMENTS, MOUNTS, "--preload"

static char output[8192]; /* of the last run */
static double took;       /* seconds */
static bool mapped;       /* the hook runs in a user namespace */

/* ---- files ---- */

static void make_folder(const char *path) {
    char part[512];
    for (size_t i = 1; i <= strlen(path); i++) {
        if (path[i] == '/' || path[i] == 0) {
            snprintf(part, sizeof part, "%.*s", (int)i, path);
            CHECK(mkdir(part, 0755) == 0 || errno == EEXIST, "%s: %s", part, strerror(errno));
        }
    }
}

static void make_folder_of(const char *path) {
    char folder[512];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    make_folder(folder);
}

static void make_file(const char *path, const char *text) {
    make_folder_of(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0, "%s", path);
}

/* A text, and after it one byte many times. */
static void make_long_file(const char *path, const char *start, char byte, size_t length) {
    char *text = malloc(length + 1);
    memset(text, byte, length);
    memcpy(text, start, strlen(start));
    text[length] = 0;
    make_file(path, text);
    free(text);
}

static void copy_file(const char *from, const char *to) {
    make_folder_of(to);
    CHECK(check_copy(from, to) == 0 && chmod(to, 0755) == 0, "%s to %s", from, to);
}

static void bind(const char *from, const char *to) {
    CHECK(mount(from, to, NULL, MS_BIND, NULL) == 0, "%s on %s: %s", from, to, strerror(errno));
}

/* Replaces the only text in a copy of a file by another of the same length, or of a shorter one with NULs. */
static void replace_in(const char *path, const char *text, const char *other) {
    static char bytes[4 << 20];
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ssize_t length = read(fd, bytes, sizeof bytes);
    char *at = length > 0 ? memmem(bytes, (size_t)length, text, strlen(text)) : NULL;
    CHECK(at != NULL && strlen(other) <= strlen(text), "%s in %s", text, path);
    char padded[256] = "";
    strcpy(padded, other);
    CHECK(pwrite(fd, padded, strlen(text), at - bytes) == (ssize_t)strlen(text), "%s", path);
    close(fd);
}

static void configure(const char *process) {
    char text[2048];
    snprintf(text, sizeof text, "{\"ociVersion\":\"1.2.0\",\"root\":{\"path\":\"rootfs\"},\"process\":{%s}}\n",
             process);
    make_file(BUNDLE "/config.json", text);
}

static void configure_program(const char *program) {
    char process[512];
    snprintf(process, sizeof process, "\"cwd\":\"/\",\"args\":[\"%s\",\"-x\"],\"env\":[\"PATH=/usr/bin:/bin\"]",
             program);
    configure(process);
}

static void state(const char *annotations) {
    char text[4096];
    snprintf(text, sizeof text,
             "{\"ociVersion\":\"1.2.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":1,\"bundle\":\"" BUNDLE
             "\",\"annotations\":{%s}}",
             annotations);
    make_file("/mnt/state", text);
}

/* An image with a program at /bin/app and no loader, and its mounts. */
static void make_container(void) {
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/mnt", "tmpfs", 0, "mode=755") != 0) {
        SKIP("mounts are not permitted here");
    }
    make_file(NODE "/limits/vgpu", "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001 memory=100Mi cores=0\n");
    make_file(NODE "/ld.so.preload", "/usr/local/aliquot/v/libaliquot.so\n");
    make_file(NODE "/region", "");
    make_folder(ROOT "/etc/aliquot");
    make_file(ROOT "/etc/ld.so.preload", "");
    make_file(ROOT "/usr/local/aliquot/region", "");
    bind(NODE "/limits", ROOT "/etc/aliquot");
    bind(NODE "/ld.so.preload", ROOT "/etc/ld.so.preload");
    bind(NODE "/region", ROOT "/usr/local/aliquot/region");
    copy_file("/proc/self/exe", ROOT "/bin/app");
    configure_program("/bin/app");
    state(CONTAINERD);
}

/* The same with glibc's loader, which is this machine's. */
static void make_glibc_container(void) {
    make_container();
    copy_file(GLIBC_LOADER, ROOT GLIBC_LOADER);
}

/* A program whose loader is another one. */
static void make_program(const char *path, const char *loader) {
    copy_file("/proc/self/exe", path);
    replace_in(path, GLIBC_LOADER, loader);
}

static void make_musl(void) {
    make_file(ROOT MUSL_LOADER, "\177ELF /etc/ld-musl-x86_64.path LD_PRELOAD");
    make_program(ROOT "/bin/musl-app", MUSL_LOADER);
}

/* ---- the hook ---- */

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void write_map(pid_t child, const char *map) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", child, map);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, "0 100000 65536", 14) == 14, "%s: %s", path, strerror(errno));
    close(fd);
}

/* Runs the hook until all its output is closed, as runc does, and returns its exit status; of a signal, the negative.
 */
static int run_with(int input, const char *const arguments[]) {
    int ends[2], go[2], status = 0;
    double start = seconds();
    size_t length = 0;
    CHECK(input >= 0 && pipe2(ends, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0, "the hook's input and output");
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD | (mapped ? CLONE_NEWUSER : 0), NULL, NULL, NULL, NULL);
    if (child == 0) {
        char byte;
        close(go[1]);
        (void)!read(go[0], &byte, 1); /* until the namespace has its maps */
        CHECK(!mapped || (setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0), "the namespace's root");
        dup2(input, STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execv(HOOK, (char *const *)arguments);
        _exit(EXIT_FAILURE);
    }
    if (mapped) {
        write_map(child, "uid_map");
        write_map(child, "gid_map");
    }
    close(go[0]);
    close(go[1]);
    close(ends[1]);
    for (ssize_t got = 1; got > 0; length += got > 0 ? (size_t)got : 0) {
        got = read(ends[0], output + length, sizeof output - 1 - length);
    }
    output[length] = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    took = seconds() - start;
    close(ends[0]);
    close(input);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

#define RUN(...)                                                                                                       \
    run_with(open("/mnt/state", O_RDONLY | O_CLOEXEC), (const char *const[]){"aliquot-hook", __VA_ARGS__, NULL})

#define EXPECT_SILENT_START(...)                                                                                       \
    do {                                                                                                               \
        int expect_status = RUN(__VA_ARGS__);                                                                          \
        CHECK(expect_status == 0 && output[0] == 0, "status %d, output %s", expect_status, output);                    \
    } while (0)

/* The hook ends with this status after one line that has this text. */
#define EXPECT(status, text, ...)                                                                                      \
    do {                                                                                                               \
        int expect_status = RUN(__VA_ARGS__);                                                                          \
        CHECK(expect_status == (status) && strstr(output, text) != NULL, "status %d, output %s", expect_status,        \
              output);                                                                                                 \
        CHECK(strncmp(output, "aliquot-hook: ", 14) == 0 && strchr(output, '\n') == output + strlen(output) - 1,       \
              "one line: %s", output);                                                                                 \
    } while (0)

/* ---- which container ---- */

TEST(the_container_of_the_allocation_starts_without_a_line) {
    make_glibc_container();
    EXPECT_SILENT_START(ARGUMENTS);
    state(CRI_O);
    EXPECT_SILENT_START(ARGUMENTS);
}

TEST(another_container_of_the_pod_does_not_start) {
    make_glibc_container();
    EXPECT(1, "io.kubernetes.cri.container-name=main; delete the pod", "--pod-uid", UID, "--namespace", "team", "--pod",
           "train-0", "--container", "init", MOUNTS);
    EXPECT(1, "container-name=main", "--pod-uid", UID, "--namespace", "team", "--pod", "train-0", "--container", "mai",
           MOUNTS);
}

TEST(a_container_of_another_pod_does_not_start) {
    make_glibc_container();
    EXPECT(1, "sandbox-uid=" UID, "--pod-uid", "5d0c0f5e-6b4a-4f0e-8a57-0a1b2c3d4e50", "--namespace", "team", "--pod",
           "train-0", "--container", "main", MOUNTS);
    EXPECT(1, "sandbox-namespace=team", "--pod-uid", UID, "--namespace", "tea", "--pod", "train-0", "--container",
           "main", MOUNTS);
    EXPECT(1, "sandbox-name=train-0", "--pod-uid", UID, "--namespace", "team", "--pod", "train-1", "--container",
           "main", MOUNTS);
    state(CRI_O);
    EXPECT(1, "io.kubernetes.pod.name=train-0", "--pod-uid", UID, "--namespace", "team", "--pod", "train-1",
           "--container", "main", MOUNTS);
}

TEST(annotations_of_a_tenant_do_not_stand_for_the_runtimes) {
    make_glibc_container();
    state(CONTAINERD ",\"io.kubernetes.pod.uid\":\"another\"");
    EXPECT(1, "io.kubernetes.pod.uid=another", ARGUMENTS);
    state("\"io.kubernetes.pod.uid\":\"another\",\"io.kubernetes.pod.namespace\":\"team\","
          "\"io.kubernetes.pod.name\":\"train-0\",\"io.kubernetes.container.name\":\"main\"," CONTAINERD);
    EXPECT(1, "io.kubernetes.pod.uid=another", ARGUMENTS);
    state(CONTAINERD "," CRI_O);
    EXPECT_SILENT_START(ARGUMENTS);
    state("\"io.kubernetes.pod.uid\":\"" UID "\",\"io.kubernetes.cri.container-name\":\"main\"");
    EXPECT(1, "annotations of containerd (io.kubernetes.cri.sandbox-uid)", ARGUMENTS);
    state("\"text\":\"\\\"io.kubernetes.pod.uid\\\":\\\"" UID "\\\"\"");
    EXPECT(1, "annotations of containerd", ARGUMENTS);
    state(CONTAINERD ",\"io.kubernetes.cri.sandbox-uid\":\"another\"");
    EXPECT(1, "annotations of containerd", ARGUMENTS);
    make_file("/mnt/state", "{\"bundle\":\"" BUNDLE "\"}");
    EXPECT(1, "annotations of containerd", ARGUMENTS);
}

TEST(other_arguments_are_refused) {
    make_glibc_container();
    CHECK_EQUAL(RUN("--pod-uid", UID), 2);
    CHECK(strstr(output, "usage: aliquot-hook") != NULL, "%s", output);
    CHECK_EQUAL(RUN(ARGUMENTS, "--container"), 2);
    CHECK_EQUAL(RUN(ARGUMENTS, "--note"), 2);
    CHECK_EQUAL(RUN(ARGUMENTS, "--mount", "/a"), 2);
    CHECK_EQUAL(RUN(ARGUMENTS, "--mount", "a", "/a"), 2);
    CHECK_EQUAL(RUN(ARGUMENTS, "preload"), 2);
}

/* ---- mounts ---- */

TEST(a_file_that_is_not_mounted_ends_the_start) {
    make_glibc_container();
    CHECK(umount(ROOT "/usr/local/aliquot/region") == 0, "umount");
    EXPECT(1, "/usr/local/aliquot/region in the container is not " NODE "/region", ARGUMENTS);
    CHECK(unlink(ROOT "/usr/local/aliquot/region") == 0, "unlink");
    EXPECT(1, "/usr/local/aliquot/region, which limits the container's GPUs, is not in the container", ARGUMENTS);
    EXPECT(1, "region", ANY_ARGUMENTS, MOUNTS);
}

TEST(another_file_at_the_path_ends_the_start) {
    make_glibc_container();
    make_file("/mnt/volume/vgpu", "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001 memory=80000Mi cores=0\n");
    bind("/mnt/volume", ROOT "/etc/aliquot");
    EXPECT(1, "/etc/aliquot in the container is not " NODE "/limits", ARGUMENTS);
    CHECK(umount(ROOT "/etc/aliquot") == 0, "umount");
    EXPECT_SILENT_START(ARGUMENTS);
    make_file(NODE "/.region.new", "");
    CHECK(rename(NODE "/.region.new", NODE "/region") == 0, "rename"); /* the container has the old one */
    EXPECT(1, "region", ARGUMENTS);
}

TEST(a_link_out_of_the_root_does_not_reach_the_nodes_files) {
    static const char *const links[] = {NODE "/region", "../../../../../../../../.." NODE "/region",
                                        "/proc/self/root" NODE "/region", "/proc/self/cwd/region"};
    make_glibc_container();
    make_folder(ROOT "/proc");
    CHECK(mount("proc", ROOT "/proc", "proc", 0, NULL) == 0 && chdir(NODE) == 0, "/proc");
    CHECK(umount(ROOT "/usr/local/aliquot/region") == 0, "umount");
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        CHECK(unlink(ROOT "/usr/local/aliquot/region") == 0, "unlink");
        CHECK(symlink(links[i], ROOT "/usr/local/aliquot/region") == 0, "%s", links[i]);
        EXPECT(1, "is not in the container", ARGUMENTS);
    }
}

TEST(links_within_the_image_are_followed) {
    make_glibc_container();
    CHECK(rename(ROOT "/usr/local", ROOT "/opt") == 0 && symlink("/opt", ROOT "/usr/local") == 0, "/usr/local");
    EXPECT_SILENT_START(ARGUMENTS);
}

TEST(mounts_are_compared_in_a_user_namespace_that_may_not_follow_the_nodes_paths) {
    make_glibc_container();
    make_folder("/mnt/pods");
    CHECK(mount("tmpfs", "/mnt/pods", "tmpfs", 0, "mode=700") == 0, "tmpfs");
    make_folder("/mnt/pods/a volume");
    make_folder("/mnt/pods/another");
    for (int i = 0; i < 2; i++) { /* as after a restart of the kubelet */
        CHECK(mount("tmpfs", "/mnt/pods/a volume", "tmpfs", 0, NULL) == 0, "tmpfs");
    }
    CHECK(mount("tmpfs", "/mnt/pods/another", "tmpfs", 0, NULL) == 0, "tmpfs");
    make_file("/mnt/pods/a volume/vgpu", "");
    CHECK(symlink("pods", "/mnt/kubelet") == 0, "symlink");
    bind("/mnt/pods/a volume", ROOT "/etc/aliquot");
    mapped = true;
    EXPECT_SILENT_START(ANY_ARGUMENTS, "--mount", "/mnt/pods/a volume", "/etc/aliquot");
    EXPECT_SILENT_START(ANY_ARGUMENTS, "--mount", "/mnt/kubelet/a volume", "/etc/aliquot", "--mount",
                        "/mnt/kubelet/a volume/vgpu", "/etc/aliquot/vgpu");
    EXPECT(1, "/etc/aliquot in the container is not /mnt/kubelet/another", ANY_ARGUMENTS, "--mount",
           "/mnt/kubelet/another", "/etc/aliquot");
    EXPECT(1, "/etc/aliquot in the container is not /mnt/pods/a", ANY_ARGUMENTS, "--mount", "/mnt/pods/a",
           "/etc/aliquot");
    EXPECT(1, "/etc/aliquot in the container is not", ANY_ARGUMENTS, "--mount", "/mnt/pods/a volume/vgpu",
           "/etc/aliquot");
    CHECK(mount("tmpfs", ROOT "/etc", "tmpfs", 0, NULL) == 0, "tmpfs"); /* covers the right one */
    make_file(ROOT "/etc/aliquot/vgpu", "");
    EXPECT(1, "/etc/aliquot in the container is not", ANY_ARGUMENTS, "--mount", "/mnt/pods/a volume", "/etc/aliquot");
    CHECK(umount(ROOT "/etc") == 0 && umount(ROOT "/etc/aliquot") == 0, "umount");
    EXPECT(1, "/etc/aliquot in the container is not", ANY_ARGUMENTS, "--mount", "/mnt/pods/a volume", "/etc/aliquot");
}

/* ---- images ---- */

TEST(an_image_with_musl_does_not_start) {
    make_container();
    make_musl();
    configure_program("/bin/musl-app");
    EXPECT(1, "its dynamic loader " MUSL_LOADER " does not read /etc/ld.so.preload; use an image with glibc",
           ARGUMENTS);
    configure_program("/bin/missing");
    EXPECT(1, MUSL_LOADER, ARGUMENTS);
    EXPECT_SILENT_START(ANY_ARGUMENTS, MOUNTS);
}

TEST(a_program_of_musl_in_an_image_with_glibc_does_not_start) {
    make_glibc_container();
    make_musl();
    configure_program("/bin/app");
    EXPECT_SILENT_START(ARGUMENTS);
    configure_program("/bin/musl-app");
    EXPECT(1, MUSL_LOADER, ARGUMENTS);
}

TEST(a_loader_of_musl_in_glibcs_place_does_not_start) {
    make_container();
    make_musl();
    make_folder_of(ROOT GLIBC_LOADER);
    CHECK(symlink(MUSL_LOADER, ROOT GLIBC_LOADER) == 0, "gcompat");
    EXPECT(1, GLIBC_LOADER, ARGUMENTS);
}

TEST(a_loader_is_read_to_its_end) {
    static const size_t places[] = {0, 65536 - 9, 65536 - 18, 3 * 65536 - 19, 1000000};
    make_container();
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        make_long_file(ROOT GLIBC_LOADER, "", ' ', places[i] + sizeof "/etc/ld.so.preload");
        int fd = open(ROOT GLIBC_LOADER, O_WRONLY | O_CLOEXEC);
        CHECK(pwrite(fd, "/etc/ld.so.preload", 19, (off_t)places[i]) == 19 && close(fd) == 0, "%s", GLIBC_LOADER);
        EXPECT_SILENT_START(ARGUMENTS);
    }
    make_file(ROOT GLIBC_LOADER, "/etc/ld.so.preload.d");
    EXPECT(1, GLIBC_LOADER, ARGUMENTS);
}

TEST(an_image_of_nix_does_not_start) {
    make_container();
    copy_file(GLIBC_LOADER, ROOT NIX_LOADER);
    replace_in(ROOT NIX_LOADER, "/etc/ld.so.preload", "/etc/ld-nix.so.pre"); /* as Nix does, cut to the length */
    make_program(ROOT "/bin/nix-app", "/nix/l.so");
    CHECK(symlink(NIX_LOADER, ROOT "/nix/l.so") == 0, "symlink");
    configure_program("/bin/nix-app");
    EXPECT(1, "/nix/l.so does not read", ARGUMENTS);
}

static void make_static_container(void) {
    make_container();
    copy_file(HOOK, ROOT "/bin/static");
    configure_program("/bin/static");
}

TEST(an_image_without_a_dynamic_loader_starts) {
    make_static_container();
    EXPECT_SILENT_START(ARGUMENTS);
    make_folder(ROOT "/nix/store/0-glibc-doc");
    EXPECT_SILENT_START(ARGUMENTS);
}

/* ---- the note for the node agent ---- */

#define NOTE NODE "/note"

static long note_size(void) {
    struct stat status;
    CHECK(lstat(NOTE, &status) == 0, "%s", NOTE);
    return status.st_size;
}

/* As the agent makes it. */
static void make_note(void) {
    make_file(NOTE, "");
    CHECK(chmod(NOTE, 0622) == 0, "chmod");
}

TEST(the_note_tells_an_image_without_a_loader_at_each_start) {
    make_static_container();
    make_note();
    EXPECT_SILENT_START(ARGUMENTS, "--note", NOTE);
    EXPECT_SILENT_START(ARGUMENTS, "--note", NOTE);
    CHECK_EQUAL(note_size(), 1);
}

TEST(a_user_namespace_can_leave_a_note) {
    make_static_container();
    make_note();
    mapped = true;
    EXPECT_SILENT_START(ARGUMENTS, "--note", NOTE);
    CHECK_EQUAL(note_size(), 1);
}

TEST(no_note_says_that_an_image_has_a_loader_or_is_not_to_be_looked_at) {
    make_static_container();
    make_note();
    EXPECT_SILENT_START(ANY_ARGUMENTS, MOUNTS, "--note", NOTE);
    EXPECT(1, "container-name=main", "--pod-uid", UID, "--namespace", "team", "--pod", "train-0", "--container", "init",
           MOUNTS, "--preload", "--note", NOTE);
    copy_file(GLIBC_LOADER, ROOT GLIBC_LOADER);
    EXPECT_SILENT_START(ARGUMENTS, "--note", NOTE);
    CHECK_EQUAL(note_size(), 0);
}

TEST(a_note_that_cannot_be_written_ends_no_start) {
    make_static_container();
    EXPECT_SILENT_START(ARGUMENTS, "--note", NOTE);
    CHECK(access(NOTE, F_OK) != 0, "the hook makes no file");
    make_file("/mnt/other", "");
    CHECK(symlink("/mnt/other", NOTE) == 0, "symlink");
    EXPECT_SILENT_START(ARGUMENTS, "--note", NOTE);
    struct stat status;
    CHECK(stat("/mnt/other", &status) == 0 && status.st_size == 0, "the hook follows no link");
    CHECK(unlink(NOTE) == 0 && mkfifo(NOTE, 0622) == 0, "mkfifo");
    EXPECT_SILENT_START(ARGUMENTS, "--note", NOTE);
    CHECK(unlink(NOTE) == 0 && mkdir(NOTE, 0755) == 0, "mkdir");
    EXPECT_SILENT_START(ARGUMENTS, "--note", NOTE);
}

TEST(a_static_program_starts_where_the_image_has_glibc_and_not_where_it_has_another) {
    make_glibc_container();
    copy_file(HOOK, ROOT "/bin/static");
    configure_program("/bin/static");
    EXPECT_SILENT_START(ARGUMENTS);
    char path[256];
    snprintf(path, sizeof path, ROOT "/nix/store/0-glibc-2.40/lib%s", strrchr(GLIBC_LOADER, '/'));
    make_folder_of(path);
    CHECK(rename(ROOT GLIBC_LOADER, path) == 0, "rename");
    EXPECT_SILENT_START(ARGUMENTS); /* a store of another make, whose loader reads the file */
    replace_in(path, "/etc/ld.so.preload", "/etc/ld-nix.so.pre");
    EXPECT(1, "/nix/store/0-glibc-2.40/lib", ARGUMENTS);
}

TEST(scripts_are_followed) {
    make_glibc_container();
    make_musl();
    make_file(ROOT "/usr/bin/start", "#! /bin/musl-app -e\n");
    configure_program("start");
    EXPECT(1, MUSL_LOADER, ARGUMENTS);
    make_file(ROOT "/bin/second", "#!start\n");
    configure("\"cwd\":\"/usr/bin\",\"args\":[\"../../bin/second\"]");
    EXPECT(1, MUSL_LOADER, ARGUMENTS);
    make_file(ROOT "/usr/bin/start", "#!/bin/app");
    EXPECT_SILENT_START(ARGUMENTS);
    static const char *const of_no_program[] = {"#!/usr/bin/start\n", "#!", "#!\n", "", "#!/bin\n", "#!/bin/missing\n"};
    for (size_t i = 0; i < sizeof of_no_program / sizeof of_no_program[0]; i++) {
        make_file(ROOT "/usr/bin/start", of_no_program[i]);
        EXPECT_SILENT_START(ARGUMENTS);
    }
}

TEST(a_program_is_searched_as_the_runtime_does) {
    make_glibc_container();
    make_musl();
    make_file(ROOT "/usr/bin/tool", "#!/bin/app\n");
    make_file(ROOT "/opt/tool", "#!/bin/musl-app\n");
    configure("\"cwd\":\"/\",\"args\":[\"tool\"],\"env\":[\"PATH=/opt\",\"XPATH=/opt\",\"PATH=/none:/usr/bin:/"
              "opt\",\"LANG=C\"]");
    EXPECT_SILENT_START(ARGUMENTS);
    CHECK(chmod(ROOT "/usr/bin/tool", 0644) == 0, "chmod");
    EXPECT(1, MUSL_LOADER, ARGUMENTS);
    configure("\"cwd\":\"/opt\",\"args\":[\"tool\"],\"env\":[\"PATH=\"]");
    EXPECT(1, MUSL_LOADER, ARGUMENTS);
    configure("\"args\":[]");
    EXPECT_SILENT_START(ARGUMENTS);
}

TEST(a_program_that_is_no_regular_file_is_not_opened) {
    make_glibc_container();
    CHECK(mkfifo(ROOT "/bin/fifo", 0777) == 0 && mknod(ROOT "/bin/tty", S_IFCHR | 0777, makedev(5, 0)) == 0, "mknod");
    make_folder(ROOT "/bin/folder");
    CHECK(symlink("/proc/self/exe", ROOT "/bin/link") == 0 && symlink("loop", ROOT "/bin/loop") == 0, "symlink");
    static const char *const programs[] = {"/bin/fifo", "/bin/tty", "/bin/folder", "/bin/link", "/bin/loop", "fifo"};
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        configure_program(programs[i]);
        EXPECT_SILENT_START(ARGUMENTS);
    }
    CHECK(unlink(ROOT GLIBC_LOADER) == 0 && mkfifo(ROOT GLIBC_LOADER, 0777) == 0, "mkfifo");
    EXPECT(1, "expected the image's dynamic loader at " GLIBC_LOADER, ARGUMENTS);
}

TEST(a_file_system_that_does_not_answer_ends_the_start) {
    char options[128];
    make_glibc_container();
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    make_folder(ROOT "/volume");
    if (device < 0 || mount("silent", ROOT "/volume", "fuse", 0, options) != 0) {
        SKIP("FUSE is not available here");
    }
    configure_program("/volume/app");
    EXPECT(1, "cannot be read within 5 s", ARGUMENTS);
    CHECK(took < 8, "%g s", took); /* with what a busy machine adds */
}

/* ---- the runtime's texts, and lines ---- */

TEST(a_state_that_does_not_end_ends_the_start) {
    int ends[2];
    make_glibc_container();
    CHECK(pipe2(ends, O_CLOEXEC) == 0 && write(ends[1], "{", 1) == 1, "pipe");
    CHECK_EQUAL(run_with(ends[0], (const char *const[]){"aliquot-hook", ARGUMENTS, NULL}), -SIGALRM);
    CHECK(took < 8, "%g s", took);
}

TEST(texts_that_are_no_json_too_deep_or_too_long_are_refused) {
    static const char *const files[] = {"/mnt/state", BUNDLE "/config.json"};
    static const char *const expected[] = {"expected the container's state from the container runtime as JSON",
                                           "expected the bundle's config.json from the container runtime as JSON"};
    for (size_t i = 0; i < 2; i++) {
        make_glibc_container();
        make_long_file(files[i], "[", '[', 100000);
        EXPECT(1, expected[i], ARGUMENTS);
        make_long_file(files[i], "{}", ' ', 10 << 20);
        EXPECT(1, expected[i], ARGUMENTS);
        make_file(files[i], "{\"bundle\":\"" BUNDLE "\",\"root\":");
        EXPECT(1, expected[i], ARGUMENTS);
        make_file(files[i], "");
        EXPECT(1, expected[i], ARGUMENTS);
        make_file(files[i], "{}");
        EXPECT(1, "in the", ARGUMENTS);
    }
    CHECK(unlink(BUNDLE "/config.json") == 0, "unlink");
    state(CONTAINERD);
    EXPECT(1, "cannot open the bundle's config.json", ARGUMENTS);
}

TEST(a_long_environment_is_read) {
    make_glibc_container();
    make_musl();
    size_t size = 3 << 20, length;
    char *text = malloc(size + 512);
    length = (size_t)sprintf(text, "{\"root\":{\"path\":\"" ROOT "\"},\"process\":{\"env\":[\"A=");
    memset(text + length, 'x', size);
    strcpy(text + length + size, "\",\"PATH=/bin\"],\"args\":[\"musl-app\"],\"cwd\":\"/\"}}");
    make_file(BUNDLE "/config.json", text);
    free(text);
    EXPECT(1, MUSL_LOADER, ARGUMENTS);
}

TEST(a_line_has_no_control_characters_of_a_tenant) {
    make_glibc_container();
    state("\"io.kubernetes.cri.sandbox-uid\":\"a\\u001b[2Jb\\nc\xc3\xa9\"");
    EXPECT(1, "sandbox-uid=a?[2Jb?c??;", ARGUMENTS);
    make_long_file("/mnt/state", "{\"bundle\":\"" BUNDLE "\",\"annotations\":{\"io.kubernetes.pod.uid\":\"", 'x', 2000);
    int fd = open("/mnt/state", O_WRONLY | O_APPEND | O_CLOEXEC);
    CHECK(write(fd, "\"}}", 3) == 3 && close(fd) == 0, "/mnt/state");
    EXPECT(1, "io.kubernetes.pod.uid=;", ARGUMENTS); /* longer than any name */
}
