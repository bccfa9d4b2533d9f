/*
 * Fuzzes the region file: a process repairs or refuses it, and uses it without a crash, without a hang and without
 * exceeding its limit. The first byte of an input modulo 3 selects how the rest makes the file. 0: the rest is the
 * file. 1 and 2: the rest is a list of patches (3 bytes of offset, 8 of content) to a file of zeros (1) or to a file
 * with a valid header and a device (2).
 */
#include "compute/gcra.h"
#include "fuzz.h"
#include "os/usage.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void make_file(int fd, const uint8_t *data, size_t size) {
    static union {
        struct aliquot_region region;
        uint8_t bytes[ALIQUOT_REGION_SIZE];
    } image;
    expect(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    if (size == 0 || data[0] % 3 == 0) {
        expect(size < 2 || write(fd, data + 1, size - 1) == (ssize_t)size - 1);
        return;
    }
    memset(&image, 0, sizeof image);
    if (data[0] % 3 == 2) {
        image.region.header.magic = ALIQUOT_REGION_MAGIC;
        image.region.header.version = ALIQUOT_REGION_VERSION;
        image.region.header.process_high_water = ALIQUOT_REGION_PROCESSES;
        memcpy(image.region.device[0].uuid, limits.vgpu[0].uuid, 16);
    }
    for (data++, size--; size >= 11; data += 11, size -= 11) {
        size_t at = ((size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) % (ALIQUOT_REGION_SIZE - 8);
        memcpy(image.bytes + at, data + 3, 8);
    }
    expect(write(fd, &image, sizeof image) == sizeof image);
}

static void use_region(int device) {
    uint16_t living[ALIQUOT_REGION_PROCESSES];
    struct aliquot_share share = aliquot_account_share(device);
    uint64_t held = 0;
    int64_t until = 0;
    expect(!aliquot_account_reserve(device, LIMIT + 1, false));
    for (uint64_t bytes = LIMIT; bytes > 0; bytes /= 3) {
        held += aliquot_account_reserve(device, bytes, false) ? bytes : 0;
        expect(held <= LIMIT && aliquot_account_used(device) >= held);
    }
    size_t count = aliquot_shared_live_slots(living);
    expect(count <= 1); /* no other process has the file open */
    /* No other process holds memory, and the region cannot say that the host sees more: an allocation succeeds. */
    expect(aliquot_shared_slot_if_any() < 0 || held > 0);
    aliquot_usage_since(&share.region->gpu_time, share.region->history, 0, now);
    if (!aliquot_gcra_try_charge(&share.region->tat, 300000, 1000000, 0, now, &until)) {
        expect(until > now && until - now <= ALIQUOT_GCRA_WAIT_MAX_NS);
    }
    aliquot_gcra_adjust(&share.region->tat, 300000, -1000000, now);
    if (held > 0) {
        aliquot_account_release(device, held);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    static char path[64];
    char error[ALIQUOT_SHARED_ERROR] = "";
    if (fd < 0) {
        fd = memfd_create("region", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    make_file(fd, data, size);
    bool opened = aliquot_shared_open(path, NULL, error);
    expect(opened || error[0] != 0);
    if (opened) {
        const struct aliquot_header *header = &aliquot_shared_region()->header;
        expect(header->magic == ALIQUOT_REGION_MAGIC && header->version == ALIQUOT_REGION_VERSION);
        expect(header->total_size == ALIQUOT_REGION_SIZE && header->charge_size == sizeof(struct aliquot_charge));
        if (aliquot_account_set_limits(&limits, error)) {
            use_region(aliquot_account_device(limits.vgpu[0].uuid));
        }
    }
    reset_as_in_child();
    return 0;
}
