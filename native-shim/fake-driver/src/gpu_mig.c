#include "gpu_mig.h"
#include "gpu_file_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Starts are bits. Multiprocessors of an A100 and of a H100. */
static const struct row {
    unsigned number, compute_number, id, slices, memory_slices, starts, most, ampere, hopper;
    bool media;
} rows[GPU_MIG_PROFILES] = {
    {0, 0, 19, 1, 1, 0x7f, 7, 14, 16, false}, {7, 7, 20, 1, 1, 0x7f, 1, 14, 16, true},
    {9, 0, 15, 1, 2, 0x55, 4, 14, 26, false}, {1, 1, 14, 2, 2, 0x15, 3, 28, 32, false},
    {2, 2, 9, 3, 4, 0x11, 2, 42, 60, false},  {3, 3, 5, 4, 4, 0x01, 1, 56, 64, false},
    {4, 4, 0, 7, 8, 0x01, 1, 98, 132, false},
};

bool gpu_mig_capable(const struct gpu_identity *card) {
    static const char *const models[] = {"A100", "A800", "H100", "H800", "H200", "H20", "B200", "B300"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strstr(card->name, models[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* What is left of a part of the card's memory after what the driver keeps of it. */
static uint32_t usable_mib(uint64_t part) {
    uint64_t kept = part <= 5120 ? 256 : part <= 10240 ? 384 : part <= 20480 ? 512 : part * 3 / 160;
    return (uint32_t)(part - kept);
}

struct gpu_mig_profile gpu_mig_profile(const struct gpu_identity *card, unsigned number) {
    const struct row *row = &rows[number];
    uint64_t mib = (card->memory_bytes >> 20) + card->reserved_mib, gib = (mib + 1023) >> 10;
    struct gpu_mig_profile profile = {
        .number = row->number,
        .compute_number = row->compute_number,
        .id = row->id,
        .slices = row->slices,
        .memory_slices = row->memory_slices,
        .starts = row->starts,
        .most = row->most,
        .multiprocessors = card->compute_major >= 9 ? row->hopper : row->ampere,
        .media = row->media,
        .memory_mib = usable_mib(mib * row->memory_slices / GPU_MIG_MEMORY_SLICES),
    };
    if (profile.multiprocessors > card->multiprocessors) {
        profile.multiprocessors = card->multiprocessors;
    }
    unsigned gigabytes = (unsigned)((gib * row->memory_slices * 2 + GPU_MIG_MEMORY_SLICES) / GPU_MIG_MEMORY_SLICES / 2);
    snprintf(profile.name, sizeof profile.name, "%ug.%ugb%s", row->slices & 7u, gigabytes & 0xffffu,
             row->media ? "+me" : "");
    return profile;
}

bool gpu_instance(const gpu_file *gpu, struct gpu_instance *instance) {
    *instance = gpu->instance;
    return gpu->instance.card[0] != '\0';
}

static int compare_id(const void *a, const void *b) {
    unsigned left = (*(gpu_file *const *)a)->instance.id, right = (*(gpu_file *const *)b)->instance.id;
    return left < right ? -1 : left > right;
}

size_t gpu_instances(const char *card, gpu_file *const *gpus, size_t count, gpu_file *instances[GPU_MIG_SLICES]) {
    size_t found = 0;
    for (size_t i = 0; i < count && found < GPU_MIG_SLICES; i++) {
        if (strcmp(gpus[i]->instance.card, card) == 0) {
            instances[found++] = gpus[i];
        }
    }
    qsort(instances, found, sizeof instances[0], compare_id);
    return found;
}

bool gpu_mig_mode(const gpu_file *card) {
    return (gpu_health(card).states & GPU_MIG_ON) != 0;
}

bool gpu_mig_pending(const gpu_file *card) {
    return (gpu_health(card).states & GPU_MIG_PENDING) != 0;
}

static bool in_use(gpu_file *gpu) {
    struct gpu_process one;
    return gpu_processes(gpu, &one, 1) != 0;
}

/* The files of a directory that are instances of the card; the caller closes them. */
static size_t open_instances(const char *directory, const gpu_file *card, gpu_file *instances[GPU_MIG_SLICES]) {
    gpu_file *gpus[GPU_MAX_PER_NODE];
    size_t count = gpu_open_all(directory, gpus, GPU_MAX_PER_NODE, NULL), found = 0;
    size_t kept = gpu_instances(card->identity.uuid, gpus, count, instances);
    for (size_t i = 0; i < count; i++) {
        bool keep = false;
        for (found = 0; found < kept; found++) {
            keep |= gpus[i] == instances[found];
        }
        if (!keep) {
            gpu_close(gpus[i]);
        }
    }
    return kept;
}

static void close_all(gpu_file *const *gpus, size_t count) {
    for (size_t i = 0; i < count; i++) {
        gpu_close(gpus[i]);
    }
}

bool gpu_mig_set_mode(const char *directory, gpu_file *card, bool on, char error[GPU_ERROR_LENGTH]) {
    if (card->instance.card[0] != '\0' || !gpu_mig_capable(&card->identity)) {
        snprintf(error, GPU_ERROR_LENGTH, "%s (%s) is not capable of MIG", card->identity.uuid, card->identity.name);
        return false;
    }
    gpu_file *instances[GPU_MIG_SLICES];
    size_t count = open_instances(directory, card, instances);
    close_all(instances, count);
    if (!on && count != 0) {
        snprintf(error, GPU_ERROR_LENGTH, "%s has %zu instances; destroy them first", card->identity.uuid, count);
        return false;
    }
    gpu_set_state(card, GPU_MIG_PENDING, on);
    if (!in_use(card)) {
        gpu_set_state(card, GPU_MIG_ON, on);
    }
    return true;
}

/* Whether memory slices from start on are free, and the compute slices suffice. */
static bool has_room(const struct gpu_mig_profile *profile, unsigned start, gpu_file *const *instances, size_t count) {
    unsigned wanted = ((1u << profile->memory_slices) - 1) << start, slices = profile->slices;
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[instances[i]->instance.profile];
        unsigned taken = ((1u << row->memory_slices) - 1) << instances[i]->instance.start;
        slices += row->slices;
        if ((wanted & taken) != 0) {
            return false;
        }
    }
    return slices <= GPU_MIG_SLICES;
}

/* The first free start; a profile of 3 slices takes the last one, so that the slice beside it stays usable. */
static bool find_start(const struct gpu_mig_profile *profile, gpu_file *const *instances, size_t count,
                       unsigned *start) {
    bool found = false;
    for (unsigned at = 0; at < GPU_MIG_MEMORY_SLICES && (!found || profile->slices == 3); at++) {
        if ((profile->starts & 1u << at) != 0 && has_room(profile, at, instances, count)) {
            *start = at;
            found = true;
        }
    }
    return found;
}

static uint64_t mix(uint64_t h) {
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

/* The UUID of the n-th instance that a card ever had. */
static void derive_uuid(const gpu_file *card, uint32_t n, char uuid[48]) {
    unsigned char bytes[16];
    uint64_t high, low;
    gpu_uuid_bytes(card->identity.uuid, bytes);
    memcpy(&high, bytes, sizeof high);
    memcpy(&low, bytes + sizeof high, sizeof low);
    high = (mix(high + n) & ~UINT64_C(0xf000)) | 0x8000;
    low = (mix(low + n) & ~(UINT64_C(3) << 62)) | UINT64_C(2) << 62;
    snprintf(uuid, 48, "MIG-%08x-%04x-%04x-%04x-%012" PRIx64, (unsigned)(high >> 32), (unsigned)(high >> 16 & 0xffff),
             (unsigned)(high & 0xffff), (unsigned)(low >> 48), low & UINT64_C(0xffffffffffff));
}

static bool create(const char *directory, gpu_file *card, const struct gpu_mig_profile *profile, unsigned number,
                   gpu_file *const *instances, size_t count, char error[GPU_ERROR_LENGTH]) {
    struct gpu_identity identity = card->identity;
    struct gpu_instance instance = {.id = 1, .profile = number};
    if (!find_start(profile, instances, count, &instance.start)) {
        snprintf(error, GPU_ERROR_LENGTH, "%s has no room for an instance %s", identity.uuid, profile->name);
        return false;
    }
    for (size_t i = 0; i < count && instances[i]->instance.id == instance.id; i++) {
        instance.id++; /* the instances are in the order of their IDs */
    }
    memcpy(instance.card, identity.uuid, sizeof instance.card);
    derive_uuid(card, gpu_next_instance(card), identity.uuid);
    snprintf(identity.name, sizeof identity.name, "%.40s MIG %.15s", card->identity.name, profile->name);
    identity.memory_bytes = (uint64_t)profile->memory_mib << 20;
    if (identity.context_bytes > identity.memory_bytes) {
        identity.context_bytes = identity.memory_bytes;
    }
    identity.multiprocessors = profile->multiprocessors;
    identity.reserved_mib = 0;
    memset(identity.links, 0, sizeof identity.links);
    if (gpu_create_instance(directory, &identity, &instance, error) != GPU_CREATED) {
        return false;
    }
    snprintf(error, GPU_ERROR_LENGTH, "%s", identity.uuid);
    return true;
}

bool gpu_mig_create(const char *directory, gpu_file *card, const char *profile, char error[GPU_ERROR_LENGTH]) {
    if (!gpu_mig_capable(&card->identity) || !gpu_mig_mode(card)) {
        snprintf(error, GPU_ERROR_LENGTH, "%s is not in MIG mode", card->identity.uuid);
        return false;
    }
    for (unsigned number = 0; number < GPU_MIG_PROFILES; number++) {
        struct gpu_mig_profile found = gpu_mig_profile(&card->identity, number);
        if (strcmp(found.name, profile) != 0) {
            continue;
        }
        gpu_file *instances[GPU_MIG_SLICES];
        size_t count = open_instances(directory, card, instances);
        unsigned same = 0;
        for (size_t i = 0; i < count; i++) {
            same += instances[i]->instance.profile == number;
        }
        bool created = false;
        if (same >= found.most) {
            snprintf(error, GPU_ERROR_LENGTH, "%s has %u instances %s, and no more are possible", card->identity.uuid,
                     same, profile);
        } else {
            created = create(directory, card, &found, number, instances, count, error);
        }
        close_all(instances, count);
        return created;
    }
    snprintf(error, GPU_ERROR_LENGTH, "%s (%s) has no profile %.32s", card->identity.uuid, card->identity.name,
             profile);
    return false;
}

bool gpu_mig_destroy(const char *directory, gpu_file *instance, bool force, char error[GPU_ERROR_LENGTH]) {
    char path[4096];
    if (instance->instance.card[0] == '\0') {
        snprintf(error, GPU_ERROR_LENGTH, "%s is no instance", instance->identity.uuid);
        return false;
    }
    if (!force && in_use(instance)) {
        snprintf(error, GPU_ERROR_LENGTH, "%s is in use", instance->identity.uuid);
        return false;
    }
    gpu_set_state(instance, GPU_REMOVED, true); /* for the processes that have the file open */
    int length = snprintf(path, sizeof path, "%s/%s", directory, instance->identity.uuid);
    if (length < 0 || (size_t)length >= sizeof path || unlink(path) != 0) {
        snprintf(error, GPU_ERROR_LENGTH, "cannot remove %.300s: %s", path, strerror(errno));
        return false;
    }
    return true;
}

void gpu_mig_reset(const char *directory, gpu_file *card) {
    gpu_file *instances[GPU_MIG_SLICES];
    char error[GPU_ERROR_LENGTH];
    size_t count = open_instances(directory, card, instances);
    for (size_t i = 0; i < count; i++) {
        (void)gpu_mig_destroy(directory, instances[i], true, error);
    }
    close_all(instances, count);
    gpu_set_state(card, GPU_MIG_ON, gpu_mig_pending(card));
}
