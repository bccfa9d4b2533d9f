/*
 * Writes golden/region.bin and golden/region.expected, from which this side and the Java side check that they read the
 * same file alike: `region_golden FOLDER`. A line of the expected text per constant, device and charge that isn't 0.
 */
#include "aliquot/region.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct aliquot_region region;

static void print_uuid(FILE *text, const uint8_t uuid[16]) {
    fputs("GPU-", text);
    for (size_t i = 0; i < 16; i++) {
        fprintf(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    }
}

static void fill(void) {
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
    region.header.unplaced_addresses = 2;
    for (uint8_t i = 0; i < 16; i++) {
        region.device[0].uuid[i] = (uint8_t)(0x10 + i);
        region.device[1].uuid[i] = (uint8_t)(0xf0 + i);
        region.device[15].uuid[i] = (uint8_t)(0x80 - i);
    }
    region.charge[0][0].word = 3000 * (UINT64_C(1) << 20);
    region.charge[0][1].word = 1;
    region.charge[0][300].word = ALIQUOT_CHARGE_BYTES;
    region.charge[1][0].word = 512 + 3 * ALIQUOT_CHARGE_UNDECIDED; /* three threads are deciding */
    region.charge[15][300].word = (UINT64_C(1) << 44) + 7;
}

static void print(FILE *text) {
    fprintf(text, "version %u\nsize %llu\ndevices %u\nprocesses %u\nhigh-water %u\nunplaced-addresses %llu\n",
            region.header.version, (unsigned long long)region.header.total_size, region.header.device_count,
            region.header.process_count, region.header.process_high_water,
            (unsigned long long)region.header.unplaced_addresses);
    static const uint8_t nothing[16];
    for (size_t device = 0; device < ALIQUOT_REGION_DEVICES; device++) {
        if (memcmp(region.device[device].uuid, nothing, sizeof nothing) == 0) {
            continue;
        }
        unsigned long long sum = 0;
        for (size_t process = 0; process < ALIQUOT_REGION_PROCESSES; process++) {
            sum += region.charge[device][process].word & ALIQUOT_CHARGE_BYTES;
        }
        fprintf(text, "device %zu ", device);
        print_uuid(text, region.device[device].uuid);
        fprintf(text, " used=%llu\n", sum);
        for (size_t process = 0; process < ALIQUOT_REGION_PROCESSES; process++) {
            uint64_t word = region.charge[device][process].word;
            if (word != 0) {
                fprintf(text, "charge device=%zu process=%zu bytes=%llu undecided=%llu\n", device, process,
                        (unsigned long long)(word & ALIQUOT_CHARGE_BYTES),
                        (unsigned long long)(word / ALIQUOT_CHARGE_UNDECIDED));
            }
        }
    }
}

static FILE *create(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    return file;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: region_golden FOLDER\n");
        return EXIT_FAILURE;
    }
    fill();
    FILE *binary = create(argv[1], "region.bin");
    FILE *text = create(argv[1], "region.expected");
    print(text);
    int failed = fwrite(&region, sizeof region, 1, binary) != 1;
    failed |= fclose(binary);
    failed |= fclose(text);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
