/* Tests of the hook's sources, built with the sanitizers: the JSON reader, and the check of images on damaged programs.
 */
#include "../image.h"
#include "../json.h"
#include "../root.h"
#include "check.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#define SAMPLE                                                                                                         \
    "{\"bundle\":\"/run/b\",\"annotations\":{\"a.b/c\":\"\\u0026x\\\\\",\"n\":\"\"},\"l\":[1,-2.5e+3,true,[],{}]}"

static bool parses(const char *text) {
    struct json value;
    char *copy = strdup(text); /* the sanitizer sees a read beyond its end */
    bool valid = json_parse(copy, strlen(copy), &value);
    free(copy);
    return valid;
}

static struct json parse(const char *text) {
    struct json value;
    CHECK(json_parse(text, strlen(text), &value), "%s", text);
    return value;
}

static const char *string_of(const char *text) {
    static char decoded[16];
    return json_string(parse(text), decoded, sizeof decoded) ? decoded : decoded[0] == 0 ? "none" : "rest";
}

TEST(the_reader_takes_json_and_nothing_else) {
    static const char *const valid[] = {SAMPLE, " 0 ", "-0.0e-0", "\"\"", "[ ]", "{ }", "[1 , 2]", "null", "\"\x7f\""};
    static const char *const invalid[] = {"",
                                          " ",
                                          "01",
                                          "1.",
                                          "-",
                                          "+1",
                                          ".5",
                                          "1e",
                                          "nul",
                                          "True",
                                          "[1,]",
                                          "[,1]",
                                          "{\"a\":1,}",
                                          "{\"a\"}",
                                          "{a:1}",
                                          "{1:1}",
                                          "[1}",
                                          "{\"a\":1]",
                                          "\"",
                                          "\"\\x\"",
                                          "\"\\u12g4",
                                          "\"\t\"",
                                          "\"\n\"",
                                          "1 2",
                                          "[]]",
                                          "'a'",
                                          "[1 2]",
                                          "\"\\u00",
                                          "NaN",
                                          "/**/1",
                                          "\xef\xbb\xbf{}"};
    for (size_t i = 0; i < sizeof valid / sizeof valid[0]; i++) {
        CHECK(parses(valid[i]), "%s", valid[i]);
    }
    for (size_t i = 0; i < sizeof invalid / sizeof invalid[0]; i++) {
        CHECK(!parses(invalid[i]), "%s", invalid[i]);
    }
}

TEST(a_text_that_is_cut_anywhere_is_refused) {
    for (size_t length = 0; length < sizeof SAMPLE - 1; length++) {
        char text[sizeof SAMPLE] = "";
        memcpy(text, SAMPLE, length);
        CHECK(!parses(text), "%s", text);
    }
}

TEST(depth_is_bounded) {
    char text[2 * JSON_DEPTH_MAX + 3];
    for (size_t depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        text[2 * depth] = 0;
        CHECK_EQUAL(parses(text), depth == JSON_DEPTH_MAX);
    }
    size_t million = 1000000;
    char *brackets = malloc(million);
    struct json value;
    memset(brackets, '[', million);
    CHECK(!json_parse(brackets, million, &value), "an error before the stack ends");
    free(brackets);
}

TEST(members_are_found_by_their_decoded_name) {
    struct json value, annotations;
    char text[16];
    CHECK(json_member(parse(SAMPLE), "annotations", &annotations), "annotations");
    CHECK(json_member(annotations, "a.b/c", &value) && json_string(value, text, sizeof text), "a.b/c");
    CHECK(strcmp(text, "&x\\") == 0, "%s", text);
    CHECK(!json_member(parse(SAMPLE), "a.b/c", &value), "no search below");
    CHECK(!json_member(annotations, "a.b", &value), "no prefix");
    CHECK(json_member(parse("{ \"x\" : 1 , \"\\u0061\" : 2 }"), "a", &value) && *value.at == '2', "escaped name");
    CHECK(!json_member(parse("{\"a\":1,\"\\u0061\":2}"), "a", &value), "twice");
    CHECK(!json_member(parse("[\"a\",1]"), "a", &value), "an array");
    CHECK(!json_member(parse("\"{\""), "{", &value), "a string");
}

TEST(arrays_are_walked_in_order) {
    static const char *const expected[] = {"1", "\"]\"", "[2,3]", "{\"a\":[]}"};
    struct json rest = parse(" [ 1 , \"]\",[2,3],{\"a\":[]} ]"), element;
    for (size_t i = 0; i < 4; i++) {
        CHECK(json_next(&rest, &element), "element %zu", i);
        CHECK_EQUAL(element.end - element.at, strlen(expected[i]));
        CHECK(memcmp(element.at, expected[i], strlen(expected[i])) == 0, "%s", expected[i]);
    }
    CHECK(!json_next(&rest, &element), "the end");
    rest = parse("[]");
    CHECK(!json_next(&rest, &element), "an empty array");
    rest = parse("{}");
    CHECK(!json_next(&rest, &element), "an object");
}

TEST(strings_are_decoded_or_refused) {
    CHECK(strcmp(string_of("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\""), "\"\\/\b\f\n\r\tA") == 0, "escapes");
    CHECK(strcmp(string_of("\"\xc3\xa9\""), "\xc3\xa9") == 0, "UTF-8");
    CHECK(strcmp(string_of("\"123456789012345\""), "123456789012345") == 0, "as long as the buffer");
    CHECK(strcmp(string_of("\"1234567890123456\""), "none") == 0, "longer than the buffer");
    CHECK(strcmp(string_of("\"a\\u0000b\""), "none") == 0, "NUL");
    CHECK(strcmp(string_of("\"\\ud83d\\ude00\""), "none") == 0, "beyond ASCII");
    CHECK(strcmp(string_of("12"), "none") == 0, "a number");
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

TEST(random_changes_of_a_text_end_no_process) {
    unsigned seed = (unsigned)getpid();
    printf("seed %u\n", seed);
    for (double end = seconds() + 0.5; seconds() < end;) {
        char text[] = SAMPLE, decoded[8];
        struct json value, member, element;
        for (int changes = rand_r(&seed) % 4; changes >= 0; changes--) {
            text[(size_t)rand_r(&seed) % (sizeof text - 1)] = "[]{}\",:\\u0e\x01"[rand_r(&seed) % 13];
        }
        size_t length = (size_t)rand_r(&seed) % sizeof text;
        char *copy = malloc(length + 1);
        memcpy(copy, text, length);
        if (json_parse(copy, length, &value)) {
            bool found = json_member(value, "annotations", &member);
            CHECK(!found || (member.at >= copy && member.end <= copy + length), "a part of the text");
            (void)json_string(value, decoded, sizeof decoded);
            for (struct json rest = value; json_next(&rest, &element);) {
                (void)json_string(element, decoded, sizeof decoded);
            }
        }
        free(copy);
    }
}

TEST(random_changes_of_a_program_end_no_process) {
    const struct image_program program = {.name = "/program", .path = "", .cwd = "/"};
    char folder[] = "/tmp/aliquot-hook-XXXXXX", path[64], sentence[SENTENCE_MAX];
    unsigned char original[4096], bytes[4096];
    unsigned seed = (unsigned)getpid();
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), seen[2] = {0};
    printf("seed %u\n", seed);
    CHECK(self >= 0 && read(self, original, sizeof original) == sizeof original, "this program");
    CHECK(mkdtemp(folder) != NULL, "%s", folder);
    snprintf(path, sizeof path, "%s/program", folder);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0755), root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int supported = root_open(root, "/program", O_PATH);
    bool has_loader = true;
    for (double end = seconds() + 0.5; supported >= 0 && seconds() < end;) {
        memcpy(bytes, original, sizeof bytes);
        for (int changes = rand_r(&seed) % 8; changes >= 0; changes--) {
            bytes[(size_t)rand_r(&seed) % (sizeof(Elf64_Ehdr) + 4 * sizeof(Elf64_Phdr))] = (unsigned char)rand_r(&seed);
        }
        CHECK(pwrite(file, bytes, sizeof bytes, 0) == sizeof bytes, "%s", path);
        seen[image_check(root, &program, &has_loader, sentence)]++;
    }
    unlink(path);
    rmdir(folder);
    CHECK(supported >= 0, "openat2 needs Linux 5.6");
    CHECK(seen[true] > 0, "the folder has no loader");
}

/* As a pod whose image's loader is a link to ../lib once was not started, because another pod's files were moved. */
TEST(a_path_is_found_while_files_are_renamed) {
    char folder[] = "/tmp/aliquot-hook-XXXXXX", names[4][64];
    CHECK(mkdtemp(folder) != NULL, "%s", folder);
    static const char *const below[] = {"/lib", "/lib/link", "/file", "/renamed"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(names[i], sizeof names[i], "%s%s", folder, below[i]);
    }
    CHECK(mkdir(names[0], 0755) == 0 && symlink("../lib", names[1]) == 0, "%s", folder);
    close(open(names[2], O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    pid_t child = fork();
    while (child == 0) {
        (void)!(rename(names[2], names[3]) + rename(names[3], names[2]));
    }
    int root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC), failed = 0;
    for (double end = seconds() + 0.5; failed == 0 && seconds() < end;) {
        int found = root_open(root, "/lib/link", O_PATH);
        failed = found < 0 ? errno : 0;
        close(found);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    unlink(names[2]);
    unlink(names[3]);
    unlink(names[1]);
    rmdir(names[0]);
    rmdir(folder);
    CHECK(failed == 0 || failed == ENOSYS, "%s", strerror(failed));
}
