#include "gpu_profile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWITCH_US = 5, MAX_CONNECTIONS = 32, MAX_WARPS = 64 };

static struct gpu_profile profile;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* not pthread_once(), which needs glibc 2.34 */
static atomic_bool is_read;

static const struct {
    const char *name, *items;
} named_profiles[] = {
    {"kind", ""},
    {"hopper", "connections=8,switch=50,drift=20,late=5-10,lazy=5-20,pages=2,code=16,context=500,warps=16"},
    {"nastiest", "connections=8,events=own,switch=150,drift=200,late=5-20,lazy=5-100,pages=2,code=64,context=500,"
                 "import=same,warps=16"},
};

static void apply_items(const char *items);

static bool apply_item(const char *item) {
    double a = 0, b = 0;
    for (size_t i = 0; i < sizeof named_profiles / sizeof named_profiles[0]; i++) {
        if (strcmp(item, named_profiles[i].name) == 0) {
            apply_items(named_profiles[i].items);
            return true;
        }
    }
    if (sscanf(item, "connections=%lf", &a) == 1 && a >= 1 && a <= MAX_CONNECTIONS) {
        profile.connections = (unsigned)a;
    } else if (strcmp(item, "events=own") == 0) {
        profile.events_after_own = true;
    } else if (sscanf(item, "switch=%lf", &a) == 1 && a >= 0 && a <= 1000) {
        profile.switch_ns = (uint64_t)(a * 1e3);
    } else if (sscanf(item, "drift=%lf", &a) == 1 && a >= -10000 && a <= 10000) {
        profile.clock_rate = 1 + a / 1e6;
    } else if (sscanf(item, "late=%lf-%lf", &a, &b) == 2 && a >= 0 && a <= b && b <= 1000) {
        profile.late_min_ns = (uint64_t)(a * 1e3);
        profile.late_max_ns = (uint64_t)(b * 1e3);
    } else if (sscanf(item, "pages=%lf", &a) == 1 && a >= 0 && a <= 1024) {
        profile.page_bytes = (uint64_t)a << 20;
    } else if (sscanf(item, "code=%lf", &a) == 1 && a >= 0 && a <= 1e6) {
        profile.code_bytes = (uint64_t)a << 10;
    } else if (sscanf(item, "context=%lf", &a) == 1 && a >= 0 && a <= 1e6) {
        profile.context_bytes = (uint64_t)a << 20;
    } else if (sscanf(item, "warps=%lf", &a) == 1 && a >= 0 && a <= MAX_WARPS) {
        profile.warps = (unsigned)a;
    } else if (strcmp(item, "import=same") == 0) {
        profile.own_import_is_same = true;
    } else if (sscanf(item, "lazy=%lf-%lf", &a, &b) == 2 && a >= 0 && a <= b && b <= 1000) {
        profile.lazy_min_ns = (uint64_t)(a * 1e6);
        profile.lazy_max_ns = (uint64_t)(b * 1e6);
    } else {
        return false;
    }
    return true;
}

static void apply_items(const char *items) {
    char item[64];
    while (*items != '\0') {
        size_t length = strcspn(items, ",");
        snprintf(item, sizeof item, "%.*s", (int)length, items);
        if (*item != '\0' && !apply_item(item)) {
            fprintf(stderr,
                    "fake driver: ignored in ALIQUOT_FAKE_PROFILE, since it names no fact or its value is out of "
                    "range: %s\n",
                    item);
        }
        items += length + (items[length] == ',');
    }
}

static void read_environment(void) {
    const char *items = getenv("ALIQUOT_FAKE_PROFILE"), *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    profile = (struct gpu_profile){.switch_ns = SWITCH_US * 1000, .clock_rate = 1};
    if (items != NULL) {
        apply_items(items);
    }
    unsigned long number = connections != NULL ? strtoul(connections, NULL, 10) : 0;
    if (number > 0) {
        profile.connections = number < MAX_CONNECTIONS ? (unsigned)number : MAX_CONNECTIONS;
    }
}

const struct gpu_profile *gpu_profile(void) {
    if (!atomic_load_explicit(&is_read, memory_order_acquire)) {
        pthread_mutex_lock(&mutex);
        if (!atomic_load(&is_read)) {
            read_environment();
            atomic_store_explicit(&is_read, true, memory_order_release);
        }
        pthread_mutex_unlock(&mutex);
    }
    return &profile;
}

uint64_t gpu_profile_between(uint64_t min, uint64_t max) {
    /* splitmix64 (Steele, Lea and Flood 2014) of a counter. Any generator suffices. */
    static uint64_t counter;
    uint64_t x = counter += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return min + (x ^ x >> 31) % (max - min + 1);
}
