/*
 * Whether programs of an image can be limited: whether their dynamic loader reads /etc/ld.so.preload, by which the shim
 * gets into them. glibc's does; musl's reads no such file, and that of Nix reads /etc/ld-nix.so.preload. So a loader is
 * searched for the name of the file, which is in its read-only data.
 *
 * The loader is that of the container's program, through its scripts' #! lines; where that is not known or the program
 * is linked statically, it is the one that the image has at the usual path. The check tells which images work. It is no
 * wall against an image that is built to deceive it.
 */
#ifndef ALIQUOT_HOOK_IMAGE_H
#define ALIQUOT_HOOK_IMAGE_H

#include "sentence.h"

/* process of config.json. */
struct image_program {
    const char *name; /* args[0]; "": unknown */
    const char *path; /* the value of PATH */
    const char *cwd;
};

/* An image without a dynamic loader may start, and *has_loader is then false. */
bool image_check(int root, const struct image_program *program, bool *has_loader, char sentence[SENTENCE_MAX]);

#endif
