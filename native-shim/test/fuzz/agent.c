/*
 * Fuzzes the agent's file: whatever it contains, a process takes no grant or unattributed memory from a file that is
 * not of this version, and stays within its limit. The first byte of an input modulo 3 selects how the rest makes the
 * file. 0: the rest is the file. 1 and 2: the rest is a list of patches (2 bytes of offset, 8 of content) to a file of
 * zeros (1) or to a valid file with a GPU (2).
 */
#include "compute/gcra.h"
#include "fuzz.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static union {
    struct aliquot_agent agent;
    uint8_t bytes[ALIQUOT_AGENT_SIZE];
} image;

/* Returns the size of the file, whose content is in image as far as it fits. */
static size_t make_image(const uint8_t *data, size_t size) {
    memset(&image, 0, sizeof image);
    if (size == 0 || data[0] % 3 == 0) {
        size_t length = size == 0 ? 0 : size - 1;
        memcpy(&image, data + (size != 0), length < sizeof image ? length : sizeof image);
        return length;
    }
    if (data[0] % 3 == 2) {
        image.agent.header = (struct aliquot_agent_header)ALIQUOT_AGENT_HEADER;
        memcpy(image.agent.device[0].uuid, limits.vgpu[0].uuid, 16);
    }
    for (data++, size--; size >= 10; data += 10, size -= 10) {
        size_t at = ((size_t)data[0] | (size_t)data[1] << 8) % (ALIQUOT_AGENT_SIZE - 8);
        memcpy(image.bytes + at, data + 2, 8);
    }
    return sizeof image;
}

static void write_image(int fd, size_t size) {
    size_t length = size < sizeof image ? size : sizeof image;
    expect(ftruncate(fd, 0) == 0 && pwrite(fd, &image, length, 0) == (ssize_t)length &&
           ftruncate(fd, (off_t)size) == 0);
}

static bool is_valid(size_t size) {
    static const struct aliquot_agent_header expected = ALIQUOT_AGENT_HEADER;
    return size == ALIQUOT_AGENT_SIZE && memcmp(&image, &expected, offsetof(struct aliquot_agent_header, holds)) == 0;
}

static void use_account(int device, bool valid) {
    const struct aliquot_agent_device *agent = aliquot_account_agent(device);
    expect(valid || agent == &aliquot_agent_nothing);
    uint64_t unattributed = aliquot_account_used(device);
    bool counts = aliquot_agent_is_current(agent, now) && agent->unattributed != 0;
    expect(unattributed == (counts ? agent->unattributed & ALIQUOT_CHARGE_BYTES : 0));
    bool fits = unattributed <= LIMIT;
    expect(aliquot_account_reserve(device, fits ? LIMIT - unattributed : 0, false) == fits);
    expect(!aliquot_account_reserve(device, LIMIT + 1, false));
    if (fits) {
        aliquot_account_release(device, LIMIT - unattributed);
    }
    uint32_t granted = aliquot_gcra_share(300000, agent->grant, now);
    expect(granted >= ALIQUOT_GCRA_SHARE_MIN && granted <= 300000 * 9 / 8);
    expect(aliquot_gcra_borrowed(ALIQUOT_POLICY_ELASTIC, agent->borrowed, now) <= ALIQUOT_GCRA_WHOLE_GPU);
    expect(aliquot_gcra_borrowed(ALIQUOT_POLICY_FIXED, agent->borrowed, now) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    static char path[64];
    char error[ALIQUOT_SHARED_ERROR] = "";
    if (fd < 0) {
        fd = memfd_create("agent", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    size_t length = make_image(data, size);
    write_image(fd, length);
    expect(aliquot_shared_open(NULL, NULL, error));
    expect(aliquot_agent_open(path, NULL) == is_valid(length));
    expect(aliquot_account_set_limits(&limits, error));
    use_account(0, is_valid(length));
    reset_as_in_child();
    return 0;
}
