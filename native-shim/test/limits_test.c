/* Tests of the parser of limit files, on the golden files that the Java tests read, too, and on bytes that no Java
   string can hold. */
#include "check.h"
#include "limits/limits.h"

#include <dirent.h>
#include <stdint.h>

#define LINE "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001 memory=1Mi cores=0"

static size_t read_file(const char *folder, const char *name, char *text, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/%s", GOLDEN_VGPU, folder, name);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL, "%s", path);
    size_t length = fread(text, 1, size, file);
    CHECK(length < size, "%s is too long for the test", path);
    fclose(file);
    return length;
}

static size_t print(const struct aliquot_limits *limits, char *text, size_t size) {
    static const char *const policies[] = {"fixed", "elastic", "none"};
    size_t length = 0;
    for (size_t i = 0; i < limits->count; i++) {
        const struct aliquot_vgpu *vgpu = &limits->vgpu[i];
        const char *prefix = "GPU-";
        for (size_t byte = 0; byte < 16; byte++) {
            const char *dash = byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "";
            length += (size_t)snprintf(text + length, size - length, "%s%s%02x", prefix, dash, vgpu->uuid[byte]);
            prefix = "";
        }
        length += (size_t)snprintf(
            text + length, size - length, " memory=%llu cores=%u policy=%s context=%llu exclusive=%s\n",
            (unsigned long long)(vgpu->memory / ALIQUOT_MIB), vgpu->cores, policies[vgpu->policy],
            (unsigned long long)(vgpu->context_bytes / ALIQUOT_MIB), vgpu->exclusive ? "true" : "false");
    }
    return length;
}

static int for_each_golden(const char *folder, void (*check)(const char *name)) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", GOLDEN_VGPU, folder);
    DIR *directory = opendir(path);
    CHECK(directory != NULL, "%s", path);
    int count = 0;
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".vgpu") == 0) {
            check(entry->d_name);
            count++;
        }
    }
    closedir(directory);
    return count;
}

static void check_valid(const char *name) {
    static char text[1 << 17], meaning[1 << 17], found[1 << 17];
    struct aliquot_limits limits;
    char error[ALIQUOT_LIMITS_ERROR];
    CHECK(aliquot_limits_parse(text, read_file("valid", name, text, sizeof text), &limits, error), "%s: %s", name,
          error);
    char expected[4096];
    snprintf(expected, sizeof expected, "%.*s.expected", (int)(strlen(name) - 5), name);
    meaning[read_file("valid", expected, meaning, sizeof meaning - 1)] = 0;
    if (strncmp(meaning, "MIG-", 4) == 0) {
        memcpy(meaning, "GPU-", 4); /* of a UUID the shim keeps the digits alone */
    }
    found[print(&limits, found, sizeof found)] = 0;
    CHECK(strcmp(found, meaning) == 0, "%s: found\n%s expected\n%s", name, found, meaning);
}

static void check_invalid(const char *name) {
    static char text[1 << 17];
    struct aliquot_limits limits;
    char error[ALIQUOT_LIMITS_ERROR] = "";
    CHECK(!aliquot_limits_parse(text, read_file("invalid", name, text, sizeof text), &limits, error), "%s", name);
    CHECK(strstr(error, "expected ") != NULL && strchr(error, '\n') == NULL, "%s: %s", name, error);
}

TEST(every_valid_golden_file_has_its_expected_meaning) {
    CHECK(for_each_golden("valid", check_valid) >= 8, "files");
}

TEST(every_invalid_golden_file_is_refused_with_a_line_that_says_what_was_expected) {
    CHECK(for_each_golden("invalid", check_invalid) >= 35, "files");
}

static bool parses(const char *text, size_t length) {
    struct aliquot_limits limits;
    char error[ALIQUOT_LIMITS_ERROR];
    /* A copy of exactly this length lets the address sanitizer detect a read past its end. */
    char *copy = malloc(length > 0 ? length : 1);
    memcpy(copy, text, length);
    bool parsed = aliquot_limits_parse(copy, length, &limits, error);
    free(copy);
    return parsed;
}

TEST(a_file_of_64_KiB_is_read_and_one_byte_more_is_refused) {
    static char text[ALIQUOT_LIMITS_TEXT_MAX + 1];
    size_t start = (size_t)snprintf(text, sizeof text, "%s future=", LINE);
    memset(text + start, 'x', sizeof text - start);
    CHECK(parses(text, ALIQUOT_LIMITS_TEXT_MAX), "64 KiB");
    CHECK(!parses(text, ALIQUOT_LIMITS_TEXT_MAX + 1), "64 KiB and a byte");
}

TEST(sixteen_GPUs_are_read_and_seventeen_refused) {
    char text[4096];
    size_t length = 0;
    for (int i = 0; i < 17; i++) {
        CHECK_EQUAL(length > 0 && parses(text, length), i > 0);
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "GPU-8f6e8f0c-0001-4a5b-9c3d-0000000000%02x memory=1Mi cores=0\n", i);
    }
    CHECK(!parses(text, length), "17");
}

TEST(every_prefix_of_a_line_is_refused) {
    const char *line = LINE;
    for (size_t length = 0; length < strlen(line); length++) {
        CHECK(!parses(line, length), "%.*s", (int)length, line);
    }
    CHECK(parses(line, strlen(line)), "%s", line);
}

TEST(random_bytes_never_read_out_of_bounds) {
    unsigned seed = (unsigned)getpid();
    printf("seed %u\n", seed);
    srand(seed);
    static const char alphabet[] = "GPU-0123456789abcdef =\n,Miemorycsxlv\0\xff";
    for (int round = 0; round < 100000; round++) {
        char text[128];
        size_t length = (size_t)(rand() % (int)sizeof text);
        size_t kept = (size_t)snprintf(text, sizeof text, "%s", LINE);
        for (size_t i = (size_t)(rand() % (int)kept); i < length; i++) {
            text[i] = alphabet[(size_t)rand() % (sizeof alphabet - 1)];
        }
        parses(text, length);
    }
}
