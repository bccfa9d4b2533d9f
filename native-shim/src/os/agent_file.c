#include "os/agent_file.h"

#include "os/os.h"

#include <string.h>

#define MAX_AGE_NS (INT64_C(1000000) * ALIQUOT_AGENT_MAX_AGE_MS)

const struct aliquot_agent_device aliquot_agent_nothing;

static const struct aliquot_agent *agent; /* NULL: no usable file */

static bool has_this_version(const struct aliquot_agent_header *header) {
    static const struct aliquot_agent_header expected = ALIQUOT_AGENT_HEADER;
    return memcmp(header, &expected, offsetof(struct aliquot_agent_header, holds)) == 0;
}

static const struct aliquot_agent *map_agent(int fd) {
    struct aliquot_os_file file;
    if (aliquot_os_stat_fd(fd, &file) != 0 || !file.regular || file.size != ALIQUOT_AGENT_SIZE) {
        return NULL;
    }
    struct aliquot_agent *mapped = aliquot_os_map_readonly(fd, ALIQUOT_AGENT_SIZE);
    if (mapped != NULL && !has_this_version(&mapped->header)) {
        aliquot_os_unmap(mapped, ALIQUOT_AGENT_SIZE);
        mapped = NULL;
    }
    return mapped;
}

bool aliquot_agent_open(const char *path, const struct aliquot_os_file *expected) {
    int fd = agent == NULL ? aliquot_os_open(path, expected, false) : -1;
    if (fd >= 0) {
        agent = map_agent(fd);
        aliquot_os_close(fd);
    }
    return agent != NULL;
}

uint32_t aliquot_agent_holds(void) {
    return agent == NULL ? 0 : __atomic_load_n(&agent->header.holds, __ATOMIC_RELAXED);
}

const struct aliquot_agent_device *aliquot_agent_device(const uint8_t uuid[16]) {
    uint64_t wanted[2];
    memcpy(wanted, uuid, sizeof wanted);
    for (int i = 0; agent != NULL && i < ALIQUOT_AGENT_DEVICES; i++) {
        const struct aliquot_agent_device *device = &agent->device[i];
        const uint64_t *found = (const uint64_t *)(const void *)device->uuid;
        if (__atomic_load_n(&found[0], __ATOMIC_ACQUIRE) == wanted[0] &&
            __atomic_load_n(&found[1], __ATOMIC_ACQUIRE) == wanted[1]) {
            return device;
        }
    }
    return &aliquot_agent_nothing;
}

/* A time in the future is from before a reboot: a container that the kubelet starts again keeps its file. */
bool aliquot_agent_is_current(const struct aliquot_agent_device *device, int64_t now) {
    uint64_t updated_ms = __atomic_load_n(&device->updated_ms, __ATOMIC_RELAXED);
    int64_t age = updated_ms > INT64_MAX / 1000000 ? INT64_MAX : now - (int64_t)updated_ms * 1000000;
    return age <= MAX_AGE_NS && age >= -MAX_AGE_NS;
}

bool aliquot_agent_is_fresh(uint64_t word, int64_t now, int64_t max_age) {
    int64_t age = now - (int64_t)(ALIQUOT_GRANT_MS(word) * 1000000);
    return word != 0 && age <= max_age && age >= -max_age;
}

void aliquot_agent_reset(void) {
    if (agent != NULL) {
        aliquot_os_unmap((void *)(uintptr_t)agent, ALIQUOT_AGENT_SIZE);
        agent = NULL;
    }
}
