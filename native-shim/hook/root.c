#include "root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int root_open(int root, const char *path, int flags) {
    struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd;
    /* Linux refuses a ".." with EAGAIN if any file or mount of the machine was moved meanwhile (openat2(2)). The hook's
       time bounds the loop. */
    do {
        fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    } while (fd < 0 && errno == EAGAIN);
    return fd;
}

static void name_of(int fd, char name[32]) {
    snprintf(name, 32, "/proc/self/fd/%d", fd);
}

/* Opens in two steps: to open a device for reading, even without waiting, can have an effect. */
int root_open_file(int root, const char *path) {
    struct stat status;
    char name[32];
    int found = root_open(root, path, O_PATH);
    if (found < 0) {
        return -1;
    }
    int fd = -1;
    if (fstat(found, &status) == 0) {
        name_of(found, name);
        errno = EINVAL;
        fd = S_ISREG(status.st_mode) ? open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    }
    int reason = errno;
    close(found);
    errno = reason;
    return fd;
}

/* ---- the host's file at a path ---- */

/* What mountinfo says of a file: its file system as major:minor, and its path there. */
struct place {
    char device[32];
    char path[2 * PATH_MAX];
};

/* Replaces the escapes of proc_pid_mountinfo(5), such as \040 for a space. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from != 0; from++) {
        *to = *from;
        if (*from == '\\' && strspn(from + 1, "01234567") >= 3) {
            *to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
            from += 3;
        }
        to++;
    }
    *to = 0;
}

/* Length of a mount point that is the path or above it; -1: it is neither. */
static int covers(const char *point, const char *path) {
    size_t length = strcmp(point, "/") == 0 ? 0 : strlen(point);
    return strncmp(point, path, length) == 0 && (path[length] == '/' || path[length] == 0) ? (int)length : -1;
}

/* Finds the place of a path without links, in the mount of this ID or, if that is 0, in the one that is deepest, and of
   several at one point the last. */
static bool find_place(uint64_t mount, const char *path, struct place *place) {
    static char root[PATH_MAX], point[PATH_MAX];
    char *line = NULL, device[32];
    size_t capacity = 0;
    int best = -1;
    FILE *list = fopen("/proc/self/mountinfo", "re");
    while (list != NULL && getline(&line, &capacity, list) > 0) {
        unsigned long id;
        if (sscanf(line, "%lu %*u %31s %4095s %4095s", &id, device, root, point) != 4 || (mount != 0 && id != mount)) {
            continue;
        }
        unescape(root);
        unescape(point);
        int length = covers(point, path);
        if (length >= best && length >= 0) {
            best = length;
            memcpy(place->device, device, sizeof device);
            snprintf(place->path, sizeof place->path, "%s%s", strcmp(root, "/") == 0 ? "" : root, path + length);
        }
    }
    free(line);
    if (list != NULL) {
        fclose(list);
    }
    return best >= 0;
}

/* Follows the links in as much of the path as this process may. */
static bool follow(const char *path, char real[2 * PATH_MAX]) {
    char head[PATH_MAX];
    if (snprintf(head, sizeof head, "%s", path) >= (int)sizeof head) {
        return false;
    }
    for (size_t end = strlen(path); end > 0; end = (size_t)(strrchr(head, '/') - head)) {
        head[end] = 0;
        if (realpath(head, real) != NULL) {
            strcat(real, path + end);
            return true;
        }
        if (errno != EACCES) {
            return false;
        }
    }
    return false;
}

static bool is_at_same_place(int inside, const char *host) {
    static struct place found, expected;
    static char real[2 * PATH_MAX], path[PATH_MAX];
    char name[32];
    struct statx status;
    name_of(inside, name);
    ssize_t length = readlink(name, path, sizeof path - 1);
    return length > 0 && statx(inside, "", AT_EMPTY_PATH, STATX_MNT_ID, &status) == 0 &&
           (status.stx_mask & STATX_MNT_ID) != 0 && find_place(status.stx_mnt_id, path, &found) && follow(host, real) &&
           find_place(0, real, &expected) && strcmp(found.device, expected.device) == 0 &&
           strcmp(found.path, expected.path) == 0;
}

static bool is_same_file(int inside, const char *host) {
    struct stat found, expected;
    if (stat(host, &expected) == 0) {
        return fstat(inside, &found) == 0 && found.st_dev == expected.st_dev && found.st_ino == expected.st_ino;
    }
    return errno == EACCES && is_at_same_place(inside, host);
}

bool root_check_mount(int root, const struct root_mount *mount, char sentence[SENTENCE_MAX]) {
    int inside = root_open(root, mount->container, O_PATH);
    if (inside < 0) {
        return REFUSE(sentence, "%s, which limits the container's GPUs, is not in the container: %s", mount->container,
                      strerror(errno));
    }
    bool same = is_same_file(inside, mount->host);
    close(inside);
    return same
               ? true
               : REFUSE(
                     sentence,
                     "%s in the container is not %.500s of the node, which limits its GPUs; remove what the image or a "
                     "volume of the pod puts there",
                     mount->container, mount->host);
}
