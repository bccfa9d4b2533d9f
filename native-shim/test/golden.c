/*
 * Generates the examples in golden/: `golden FOLDER`. Each is a file as the shim and the node agent share it (.bin),
 * and a text that says what it contains (.expected): one line per constant, device, nonzero charge and process. Tests
 * in C and in Java compare how they read the file with the text.
 */
#include "aliquot/agent.h"
#include "aliquot/region.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIQUOT_SECOND UINT64_C(1000000000) /* ns */

static struct aliquot_region region;
static struct aliquot_agent agent = {.header = ALIQUOT_AGENT_HEADER};
static const uint8_t no_uuid[16];

static void print_uuid(FILE *text, const uint8_t uuid[16]) {
    fputs("GPU-", text);
    for (size_t i = 0; i < 16; i++) {
        fprintf(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    }
}

static void fill_region(void) {
    region.header.magic = ALIQUOT_REGION_MAGIC;
    region.header.version = ALIQUOT_REGION_VERSION;
    region.header.header_size = sizeof region.header;
    region.header.total_size = sizeof region;
    region.header.device_count = ALIQUOT_REGION_DEVICES;
    region.header.process_count = ALIQUOT_REGION_PROCESSES;
    region.header.device_size = sizeof region.device[0];
    region.header.process_size = sizeof region.process[0];
    region.header.charge_size = sizeof region.charge[0][0];
    region.header.process_high_water = 301;
    region.header.unhooked_functions = 2;
    region.header.process_refused_ms = 86400005;
    for (uint8_t i = 0; i < 16; i++) {
        region.device[0].uuid[i] = (uint8_t)(0x10 + i);
        region.device[1].uuid[i] = (uint8_t)(0xf0 + i);
        region.device[15].uuid[i] = (uint8_t)(0x80 - i);
    }
    region.charge[0][0].word = 3000 * (UINT64_C(1) << 20);
    region.charge[0][1].word = 1;
    region.charge[0][300].word = ALIQUOT_CHARGE_BYTES;
    region.charge[1][0].word = 512 + 3 * ALIQUOT_CHARGE_UNDECIDED; /* three threads have undecided requests */
    region.charge[15][300].word = (UINT64_C(1) << 44) + 7;
    region.charge[15][300].gpu_time = 5 * ALIQUOT_SECOND / 2;
    region.charge[15][300].peak = (UINT64_C(1) << 44) + 8;
    region.charge[15][300].context_bytes = 7;
    region.process[0].pid = 1;
    region.process[0].started = UINT64_C(1763708400000001);
    region.process[300].pid = UINT32_MAX;
    region.process[300].started = INT64_MAX;
    region.device[0].tat = 86400 * ALIQUOT_SECOND;
    region.device[0].gpu_time = 3600 * ALIQUOT_SECOND + 1;
    region.device[0].throttled = 1800 * ALIQUOT_SECOND + 2;
    region.device[0].wanted = 86399 * ALIQUOT_SECOND + 3;
    region.device[0].denied = 5;
    region.device[15].gpu_time = INT64_MAX;
}

static void fill_agent(void) {
    agent.header.holds = ALIQUOT_AGENT_HOLDS_WHOLE_CARDS;
    for (uint8_t i = 0; i < 16; i++) {
        agent.device[0].uuid[i] = (uint8_t)(0x10 + i);
        agent.device[2].uuid[i] = (uint8_t)(0xf0 + i);
        agent.device[15].uuid[i] = (uint8_t)(0x80 - i);
    }
    agent.device[0].grant = ALIQUOT_GRANT(86400000, 300000);
    agent.device[0].unattributed = 256 * (UINT64_C(1) << 20);
    agent.device[0].updated_ms = 86400001;
    agent.device[0].active = ALIQUOT_GRANT(86400002, 3);
    agent.device[0].borrowed = ALIQUOT_GRANT(86400003, 400000);
    agent.device[0].turn = ALIQUOT_GRANT(86400004, ALIQUOT_TURN_WAITS | ALIQUOT_TURN(511, 512));
    agent.device[1].unattributed = 1; /* a free entry whose values are written before its UUID */
    agent.device[15].grant = ALIQUOT_GRANT((UINT64_C(1) << 44) - 1, 1000000);
    agent.device[15].unattributed = ALIQUOT_CHARGE_BYTES;
    agent.device[15].updated_ms = INT64_MAX;
    agent.device[15].active = UINT64_MAX;
}

static unsigned long long wide(uint64_t number) {
    return number;
}

static void print_device(FILE *text, size_t index) {
    const struct aliquot_device *device = &region.device[index];
    unsigned long long sum = 0;
    for (size_t process = 0; process < ALIQUOT_REGION_PROCESSES; process++) {
        sum += region.charge[index][process].word & ALIQUOT_CHARGE_BYTES;
    }
    fprintf(text, "device %zu ", index);
    print_uuid(text, device->uuid);
    fprintf(text, " used=%llu tat=%llu gpu-time=%llu throttled=%llu wanted=%llu denied=%llu\n", sum, wide(device->tat),
            wide(device->gpu_time), wide(device->throttled), wide(device->wanted), wide(device->denied));
}

static void print_charges(FILE *text, size_t device) {
    for (size_t process = 0; process < ALIQUOT_REGION_PROCESSES; process++) {
        const struct aliquot_charge *charge = &region.charge[device][process];
        if (charge->word != 0) {
            fprintf(text,
                    "charge device=%zu process=%zu bytes=%llu undecided=%llu gpu-time=%llu peak=%llu context=%llu\n",
                    device, process, wide(charge->word & ALIQUOT_CHARGE_BYTES),
                    wide(charge->word / ALIQUOT_CHARGE_UNDECIDED), wide(charge->gpu_time), wide(charge->peak),
                    wide(charge->context_bytes));
        }
    }
}

static void print_region(FILE *text) {
    fprintf(text,
            "version %u\nsize %llu\ndevices %u\nprocesses %u\nhigh-water %u\nunhooked-functions %llu\n"
            "process-refused-ms %llu\n",
            region.header.version, wide(region.header.total_size), region.header.device_count,
            region.header.process_count, region.header.process_high_water, wide(region.header.unhooked_functions),
            wide(region.header.process_refused_ms));
    for (size_t device = 0; device < ALIQUOT_REGION_DEVICES; device++) {
        if (memcmp(region.device[device].uuid, no_uuid, sizeof no_uuid) != 0) {
            print_device(text, device);
            print_charges(text, device);
        }
    }
    for (size_t process = 0; process < ALIQUOT_REGION_PROCESSES; process++) {
        if (region.process[process].pid != 0) {
            fprintf(text, "process %zu pid=%u started=%llu\n", process, region.process[process].pid,
                    wide(region.process[process].started));
        }
    }
}

static void print_word(FILE *text, const char *name, uint64_t word) {
    fprintf(text, " %s=%u %s-ms=%llu", name, ALIQUOT_GRANT_SHARE(word), name, wide(ALIQUOT_GRANT_MS(word)));
}

static void print_agent(FILE *text) {
    fprintf(text, "version %u\nsize %u\ndevices %u\nholds %u\n", agent.header.version, agent.header.total_size,
            agent.header.device_count, agent.header.holds);
    for (size_t i = 0; i < ALIQUOT_AGENT_DEVICES; i++) {
        const struct aliquot_agent_device *device = &agent.device[i];
        if (memcmp(device->uuid, no_uuid, sizeof no_uuid) != 0) {
            fprintf(text, "device %zu ", i);
            print_uuid(text, device->uuid);
            fprintf(text, " unattributed=%llu updated-ms=%llu", wide(device->unattributed), wide(device->updated_ms));
            print_word(text, "granted", device->grant);
            print_word(text, "active", device->active);
            print_word(text, "borrowed", device->borrowed);
            print_word(text, "turn", device->turn);
            fputs("\n", text);
        }
    }
}

static FILE *create(const char *folder, const char *name, const char *suffix) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, suffix);
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    return file;
}

static bool write_example(const char *folder, const char *name, const void *content, size_t size,
                          void (*print)(FILE *)) {
    FILE *binary = create(folder, name, "bin");
    FILE *text = create(folder, name, "expected");
    print(text);
    int failed = fwrite(content, size, 1, binary) != 1;
    failed |= fclose(binary);
    failed |= fclose(text);
    return failed == 0;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: golden FOLDER\n");
        return EXIT_FAILURE;
    }
    fill_region();
    fill_agent();
    bool written = write_example(argv[1], "region", &region, sizeof region, print_region) &&
                   write_example(argv[1], "agent", &agent, sizeof agent, print_agent);
    return written ? EXIT_SUCCESS : EXIT_FAILURE;
}
