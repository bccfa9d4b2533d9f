/*
 * The createContainer hook of a CDI specification that the node agent writes for one container:
 *
 *     aliquot-hook --pod-uid UID --namespace NAME --pod NAME --container NAME
 *                  [--mount HOST CONTAINER]... [--preload] [--note FILE]
 *
 * It ends the start of a container (exit status 1, one line on the standard error) unless
 *  - the runtime's annotations name this container of this pod: those of containerd (io.kubernetes.cri.sandbox-uid,
 *    -namespace, -name, io.kubernetes.cri.container-name) or of CRI-O (io.kubernetes.pod.uid, .namespace, .name,
 *    io.kubernetes.container.name), and no annotation of either contradicts;
 *  - the container finds the host's file or folder HOST at the path CONTAINER, for each --mount;
 *  - with --preload, the dynamic loader of the image reads /etc/ld.so.preload (image.h). An image that has no dynamic
 *    loader starts: CUDA needs one. Since the runtime drops the output of a hook that succeeds, the hook then writes a
 *    byte into FILE of --note, for the node agent, which has made the file and makes an event of the byte. A file that
 *    is missing or cannot be written changes nothing.
 *
 * Exit status 2: other arguments.
 *
 * The runtime runs the hook in the container's namespaces, as their root, after all mounts and before pivot_root, so
 * the root is still at its place below the host's; the state is on the standard input (OCI runtime specification,
 * runtime.md, State; runc: libcontainer/rootfs_linux.go, prepareRootfs). A process of its own looks at the tenant's
 * files, because their file system may never answer. It has CHECK_SECONDS from the start of the hook; else the start
 * ends, and a pod that is never restarted has failed: on a busy node all of this may take seconds.
 */
#include "image.h"
#include "json.h"
#include "root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOUNTS_MAX = 16, CHECK_SECONDS = 5, ANNOTATION_MAX = 512, VALUES_MAX = 32768 };
#define JSON_BYTES_MAX (8 << 20) /* the kernel takes at most 6 MiB of arguments and environment: fs/exec.c */

struct options {
    const char *uid, *namespace, *pod, *container, *note;
    struct root_mount mounts[MOUNTS_MAX];
    size_t mount_count;
    bool preload;
};

/* What the runtime says about the container. */
struct container {
    struct json annotations, config;
    char root[2 * PATH_MAX];
    struct image_program program;
};

static int64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* ---- arguments ---- */

static bool parse_options(char **argument, struct options *options) {
    const struct {
        const char *name;
        const char **value;
    } values[] = {
        {"--pod-uid", &options->uid},         {"--namespace", &options->namespace}, {"--pod", &options->pod},
        {"--container", &options->container}, {"--note", &options->note},
    };
    enum { VALUES = sizeof values / sizeof values[0] };
    while (*argument != NULL) {
        const char *name = *argument++;
        size_t i = 0;
        while (i < VALUES && strcmp(name, values[i].name) != 0) {
            i++;
        }
        if (i < VALUES && *argument != NULL) {
            *values[i].value = *argument++;
        } else if (strcmp(name, "--mount") == 0 && options->mount_count < MOUNTS_MAX && argument[0] != NULL &&
                   argument[1] != NULL && argument[0][0] == '/' && argument[1][0] == '/') {
            options->mounts[options->mount_count++] = (struct root_mount){argument[0], argument[1]};
            argument += 2;
        } else if (strcmp(name, "--preload") == 0) {
            options->preload = true;
        } else {
            return false;
        }
    }
    return options->uid != NULL && options->namespace != NULL && options->pod != NULL && options->container != NULL;
}

/* ---- the container ---- */

/* Reads all of a JSON text, which stays in memory. */
static bool read_json(int fd, const char *what, struct json *value, char *sentence) {
    char *text = malloc(JSON_BYTES_MAX + 1);
    size_t length = 0;
    ssize_t got = text == NULL ? -1 : 1;
    while (got > 0 && length <= JSON_BYTES_MAX) {
        got = read(fd, text + length, JSON_BYTES_MAX + 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    if (got < 0 || length > JSON_BYTES_MAX || !json_parse(text, length, value)) {
        return REFUSE(sentence, "expected %s from the container runtime as JSON of at most %d bytes and depth %d%s%s",
                      what, JSON_BYTES_MAX, JSON_DEPTH_MAX, got < 0 ? ": " : "", got < 0 ? strerror(errno) : "");
    }
    return true;
}

/* Reads a string member of an object into the text, which is "" without it. */
static const char *read_string(struct json object, const char *name, char *text, size_t size) {
    struct json value = {0};
    (void)json_member(object, name, &value);
    (void)json_string(value, text, size);
    return text;
}

/* Reads from process the program, its working folder and PATH, of which the last counts. What is missing stays "". */
static void read_program(struct json process, struct image_program *program) {
    static char name[PATH_MAX], cwd[PATH_MAX], values[2][VALUES_MAX];
    struct json list, element;
    *program = (struct image_program){.name = name, .path = "", .cwd = read_string(process, "cwd", cwd, sizeof cwd)};
    if (json_member(process, "args", &list) && json_next(&list, &element)) {
        (void)json_string(element, name, sizeof name);
    }
    if (!json_member(process, "env", &list)) {
        return;
    }
    for (size_t i = 0; json_next(&list, &element);) {
        if (json_string(element, values[i], VALUES_MAX) && strncmp(values[i], "PATH=", 5) == 0) {
            program->path = values[i] + 5;
            i = 1 - i;
        }
    }
}

static bool read_container(struct container *container, char *sentence) {
    static char bundle[PATH_MAX], root[PATH_MAX];
    struct json state, member;
    char path[2 * PATH_MAX];
    if (!read_json(STDIN_FILENO, "the container's state", &state, sentence)) {
        return false;
    }
    if (read_string(state, "bundle", bundle, sizeof bundle)[0] != '/') {
        return REFUSE(sentence, "expected the absolute path of the bundle in the container's state");
    }
    if (!json_member(state, "annotations", &container->annotations)) {
        container->annotations = (struct json){0};
    }
    snprintf(path, sizeof path, "%s/config.json", bundle);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return REFUSE(sentence, "cannot open the bundle's config.json: %s", strerror(errno));
    }
    bool valid = read_json(fd, "the bundle's config.json", &container->config, sentence);
    close(fd);
    if (!valid) {
        return false;
    }
    if (!json_member(container->config, "root", &member) || read_string(member, "path", root, sizeof root)[0] == 0) {
        return REFUSE(sentence, "expected root.path in the bundle's config.json");
    }
    snprintf(container->root, sizeof container->root, "%s/%s", root[0] == '/' ? "" : bundle, root);
    member = json_member(container->config, "process", &member) ? member : (struct json){0};
    read_program(member, &container->program);
    return true;
}

/* Compares the runtime's annotations with the arguments. A runtime may pass annotations of the pod, which a tenant
   writes, but sets its own after these: so all that are there must agree, and those of one runtime must be complete. */
static bool check_identity(const struct options *options, struct json annotations, char *sentence) {
    static const char *const keys[2][4] = {{"io.kubernetes.cri.sandbox-uid", "io.kubernetes.cri.sandbox-namespace",
                                            "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.container-name"},
                                           {"io.kubernetes.pod.uid", "io.kubernetes.pod.namespace",
                                            "io.kubernetes.pod.name", "io.kubernetes.container.name"}};
    const char *const expected[] = {options->uid, options->namespace, options->pod, options->container};
    char found[ANNOTATION_MAX];
    bool complete = false;
    for (size_t runtime = 0; runtime < 2; runtime++) {
        int count = 0;
        for (size_t i = 0; i < 4; i++) {
            struct json value;
            if (!json_member(annotations, keys[runtime][i], &value)) {
                continue;
            }
            count++;
            if (!json_string(value, found, sizeof found) || strcmp(found, expected[i]) != 0) {
                return REFUSE(
                    sentence,
                    "the GPUs are allocated to container %.100s of pod %.100s/%.100s (%.40s), and the runtime "
                    "starts one with %s=%.100s; delete the pod that does not start",
                    options->container, options->namespace, options->pod, options->uid, keys[runtime][i], found);
            }
        }
        complete |= count == 4;
    }
    return complete
               ? true
               : REFUSE(sentence,
                        "expected the container runtime to name the container by the annotations of containerd (%s) or "
                        "CRI-O (%s)",
                        keys[0][0], keys[1][0]);
}

/* ---- the tenant's files ---- */

/* What the process that looks at the files writes into its pipe, at once. */
struct answer {
    bool may_start, has_loader;
    char sentence[SENTENCE_MAX];
};

static bool check_files(const struct options *options, const struct container *container, struct answer *answer) {
    int root = open(container->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        return REFUSE(answer->sentence, "cannot open the container's root: %s", strerror(errno));
    }
    for (size_t i = 0; i < options->mount_count; i++) {
        if (!root_check_mount(root, &options->mounts[i], answer->sentence)) {
            return false;
        }
    }
    return !options->preload || image_check(root, &container->program, &answer->has_loader, answer->sentence);
}

static bool check_files_in_time(const struct options *options, const struct container *container, int64_t deadline,
                                bool *has_loader, char *sentence) {
    struct answer answer = {.has_loader = true};
    int ends[2];
    pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (child < 0) {
        return REFUSE(sentence, "cannot start a process: %s", strerror(errno));
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* The runtime waits until no process has the hook's output open. */
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
            dup2(ends[1], fd);
        }
        answer.may_start = check_files(options, container, &answer);
        _exit(write(ends[1], &answer, sizeof answer) != sizeof answer);
    }
    close(ends[1]);
    struct pollfd ready = {.fd = ends[0], .events = POLLIN};
    int64_t left = deadline - now_ms();
    if (poll(&ready, 1, left > 0 ? (int)left : 0) <= 0) {
        kill(child, SIGKILL);
        return REFUSE(
            sentence,
            "the container's files cannot be read within %d s; is a file system of the image or of a volume slow "
            "or not answering?",
            CHECK_SECONDS);
    }
    if (read(ends[0], &answer, sizeof answer) != sizeof answer) {
        return REFUSE(sentence, "the check of the container's files has failed");
    }
    waitpid(child, NULL, 0);
    *has_loader = answer.has_loader;
    return answer.may_start || REFUSE(sentence, "%s", answer.sentence);
}

/* ---- the result ---- */

static void print(const char *sentence) {
    char line[SENTENCE_MAX + 32];
    int length = snprintf(line, sizeof line, "aliquot-hook: %s\n", sentence);
    for (int i = 0; i < length - 1; i++) {
        line[i] = line[i] < ' ' || line[i] > '~' ? '?' : line[i]; /* a tenant's name may be in it */
    }
    (void)!write(STDERR_FILENO, line, (size_t)length);
}

/* The agent's folder is no place for a tenant's files, so this waits for none. */
static void leave_note(const char *file) {
    int fd = open(file, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        (void)!pwrite(fd, "L", 1, 0);
        close(fd);
    }
}

int main(int argument_count, char **arguments) {
    static struct options options;
    static struct container container;
    char sentence[SENTENCE_MAX] = "";
    bool has_loader = true;
    int64_t deadline = now_ms() + 1000 * CHECK_SECONDS;
    alarm(CHECK_SECONDS + 1); /* ends the hook, and with it the start, if the runtime's files do not answer */
    if (argument_count < 1 || !parse_options(arguments + 1, &options)) {
        dprintf(STDERR_FILENO, "usage: aliquot-hook --pod-uid UID --namespace NAME --pod NAME --container NAME "
                               "[--mount HOST CONTAINER]... [--preload] [--note FILE]\n");
        return 2;
    }
    if (!read_container(&container, sentence) || !check_identity(&options, container.annotations, sentence) ||
        !check_files_in_time(&options, &container, deadline, &has_loader, sentence)) {
        print(sentence);
        return 1;
    }
    if (!has_loader && options.note != NULL) {
        leave_note(options.note);
    }
    return 0;
}
