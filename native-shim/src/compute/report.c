#include "compute/report.h"

#include "compute/cost.h"
#include "compute/meter.h"
#include "limits/config.h"
#include "os/os.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COSTS_MAX 64 /* those measured most often */

/* The line. What does not fit is left out as a whole entry, so that the line stays valid JSON. */
static struct {
    char text[16384];
    size_t length;
} line;

static __attribute__((format(printf, 1, 2))) void append(const char *format, ...) {
    char entry[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(entry, sizeof entry, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < sizeof entry && line.length + (size_t)length < sizeof line.text - 8) {
        memcpy(line.text + line.length, entry, (size_t)length + 1);
        line.length += (size_t)length;
    }
}

static void append_meter(const struct aliquot_meter *meter, const char *separator) {
    const struct aliquot_lateness *lateness = &meter->lateness;
    uint64_t kept = lateness->probe_count < ALIQUOT_LATENESS_PROBES ? lateness->probe_count : ALIQUOT_LATENESS_PROBES;
    unsigned late = 0;
    for (uint64_t i = 0; i < kept; i++) {
        late += lateness->probes[i].late;
    }
    append("%s{\"device\": %d, \"probes\": %u, \"late_probes\": %u, \"late_threshold_us\": %.1f, "
           "\"launches_per_batch\": %u}",
           separator, meter->device, (unsigned)kept, late, lateness->threshold_ns / 1e3, meter->target);
}

void aliquot_report_write(void) {
    static struct aliquot_cost_figures costs[COSTS_MAX];
    const char *path = aliquot_config_report_path();
    if (path[0] == 0) {
        return;
    }
    line.length = 0;
    append("{\"pid\": %u, \"contexts\": [", aliquot_os_pid());
    const char *separator = "";
    for (int i = 0; i < ALIQUOT_METERS_MAX; i++) {
        if (aliquot_meters[i].context != NULL) {
            append_meter(&aliquot_meters[i], separator);
            separator = ", ";
        }
    }
    append("], \"costs\": [");
    size_t count = aliquot_cost_list(costs, COSTS_MAX);
    for (size_t i = 0; i < count; i++) {
        append("%s{\"ns\": %llu, \"samples\": %u, \"exact\": %u, \"least_ns\": %llu}", i == 0 ? "" : ", ",
               (unsigned long long)costs[i].nanoseconds, costs[i].samples, costs[i].exact,
               (unsigned long long)costs[i].least);
    }
    memcpy(line.text + line.length, "]}\n", 4);
    aliquot_os_append(path, line.text);
}
