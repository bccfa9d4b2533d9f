/*
 * The fake driver's cuGetProcAddress answers as NVIDIA's: the same symbol for each name, version and flag, and the same
 * results. Each driver has a namespace of its own in this process. Functions that NVIDIA's driver does not have,
 * because it is older, are not compared, nor versions older than the oldest that the fake driver has.
 */
#include "check.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>

static const char *const names[] = {
#define ENTRY(name, version, symbol) #name,
#define UNSUPPORTED ENTRY
#define PER_THREAD(name, version, symbol, plain)
#include "cuda_entries.def"
};

typedef int get_v1(const char *, void **, int, uint64_t);
typedef int get_v2(const char *, void **, int, uint64_t, int *);

static void *open_driver(const char *folder) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
    if (access(path, R_OK) != 0) {
        SKIP("%s does not exist; real_drivers.sh fetches it", path);
    }
    void *driver = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    CHECK(driver != NULL, "%s", dlerror());
    return driver;
}

static const char *symbol_of(void *function) {
    Dl_info info = {0};
    return function == NULL                                             ? "none"
           : dladdr(function, &info) != 0 && info.dli_saddr == function ? info.dli_sname
                                                                        : "a function that is not exported";
}

TEST(the_fake_driver_answers_lookups_as_nvidias) {
    enum { FOUND, NOT_FOUND, TOO_OLD };
    void *real = open_driver(getenv("REAL_DRIVER")), *fake = open_driver(getenv("FAKE_DRIVER"));
    get_v1 *real_first = (get_v1 *)dlsym(real, "cuGetProcAddress"),
           *fake_first = (get_v1 *)dlsym(fake, "cuGetProcAddress");
    get_v2 *real_second = (get_v2 *)dlsym(real, "cuGetProcAddress_v2"),
           *fake_second = (get_v2 *)dlsym(fake, "cuGetProcAddress_v2");
    int newest = 0; /* that NVIDIA's driver knows */
    CHECK_EQUAL(((int (*)(int *))dlsym(real, "cuDriverGetVersion"))(&newest), 0);
    unsigned long compared = 0, newer = 0, older = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int version = 2000; version <= newest; version += version % 1000 == 90 ? 910 : 10) {
            for (uint64_t flags = 0; flags <= 8; flags++) {
                void *expected = &expected, *found = &found;
                int expected_status = -1, status = -1;
                int result = real_second(names[i], &expected, version, flags, &expected_status);
                int fake_result = fake_second(names[i], &found, version, flags, &status);
                if (result == 0 && expected_status == NOT_FOUND) {
                    newer++;
                    continue;
                }
                if (result == 0 && expected_status == FOUND && status == TOO_OLD) {
                    older++;
                    continue;
                }
                compared++;
                CHECK(result == fake_result && expected_status == status, "%s %d %d: NVIDIA's %d, %d, fake %d, %d",
                      names[i], version, (int)flags, result, expected_status, fake_result, status);
                if (result != 0) {
                    continue;
                }
                CHECK(strcmp(symbol_of(expected), symbol_of(found)) == 0, "%s %d %d: NVIDIA's %s, fake %s", names[i],
                      version, (int)flags, symbol_of(expected), symbol_of(found));
                void *first = &first, *fake_of_first = &first;
                CHECK_EQUAL(fake_first(names[i], &fake_of_first, version, flags),
                            real_first(names[i], &first, version, flags));
                CHECK((first == &first) == (fake_of_first == &first), "%s %d %d: one of the first versions writes NULL",
                      names[i], version, (int)flags);
            }
        }
    }
    printf("%lu lookups compared; %lu of functions newer than NVIDIA's driver and %lu of versions that the fake driver "
           "lacks are not\n",
           compared, newer, older);
    CHECK(compared > 100000 && older < compared / 10, "%lu compared, %lu of older versions", compared, older);
}
