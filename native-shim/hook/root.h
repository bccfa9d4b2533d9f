/*
 * Files below a container's root, before the runtime makes it the process's own. A tenant chose what is there: paths
 * are resolved as in the container, so that no symbolic link leads out, and only regular files are opened for reading.
 */
#ifndef ALIQUOT_HOOK_ROOT_H
#define ALIQUOT_HOOK_ROOT_H

#include "sentence.h"

/* Opens a path below the root by openat2 (Linux 5.6); -1 and errno. Flags: O_PATH, or to read a folder. */
int root_open(int root, const char *path, int flags);

/* Opens a regular file for reading; -1 and errno, which is EINVAL for a file of another kind. Does not wait for a fifo,
   a device or a lease. */
int root_open_file(int root, const char *path);

/* A file or folder that the container must see. */
struct root_mount {
    const char *host, *container; /* absolute paths */
};

/* Whether the container finds the host's file at its path: the same device and inode, or, where the process may not
   follow the host's path, as in a user namespace, the same place in the same file system by /proc/self/mountinfo. */
bool root_check_mount(int root, const struct root_mount *mount, char sentence[SENTENCE_MAX]);

#endif
