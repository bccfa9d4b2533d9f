/* Allocator for list entries of one size. It maps memory from the system, because the program may have replaced
   malloc, and never unmaps it. The caller's mutex guards it. A zeroed slab is an empty one. */
#ifndef ALIQUOT_SLAB_H
#define ALIQUOT_SLAB_H

#include "os/os.h"

#include <stddef.h>
#include <string.h>

struct aliquot_slab {
    void *unused; /* each unused entry begins with the address of the next */
};

#define ALIQUOT_SLAB_ENTRIES 64

/* Returns a zeroed entry; NULL: out of memory. */
static inline void *aliquot_slab_take(struct aliquot_slab *slab, size_t size) {
    if (slab->unused == NULL) {
        char *block = aliquot_os_map(-1, ALIQUOT_SLAB_ENTRIES * size);
        for (size_t i = 0; block != NULL && i < ALIQUOT_SLAB_ENTRIES; i++) {
            memcpy(block + i * size, &slab->unused, sizeof slab->unused);
            slab->unused = block + i * size;
        }
    }
    void *entry = slab->unused;
    if (entry != NULL) {
        memcpy(&slab->unused, entry, sizeof slab->unused);
        memset(entry, 0, size);
    }
    return entry;
}

static inline void aliquot_slab_give(struct aliquot_slab *slab, void *entry) {
    memcpy(entry, &slab->unused, sizeof slab->unused);
    slab->unused = entry;
}

#endif
