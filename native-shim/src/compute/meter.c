#include "compute/meter.h"

#include "driver/lookup.h"
#include "os/fork.h"
#include "os/os.h"

#include <limits.h>
#include <string.h>

#define UNMEASURED_WORK_NS INT64_C(100000000) /* an unmeasured launch may be on the GPU for this long */

struct aliquot_meter aliquot_meters[ALIQUOT_METERS_MAX];
static atomic_bool any_meter; /* false: they are all zeros */
static atomic_flag claiming_meter = ATOMIC_FLAG_INIT;

static void reset_meters(void) {
    if (atomic_exchange(&any_meter, false)) {
        memset(aliquot_meters, 0, sizeof aliquot_meters);
    }
    atomic_flag_clear(&claiming_meter);
}

ALIQUOT_AFTER_FORK(reset_meters);

bool aliquot_meter_can_measure(void) {
    return aliquot_real.cuEventCreate != NULL && aliquot_real.cuEventRecord != NULL &&
           aliquot_real.cuEventQuery != NULL && aliquot_real.cuEventElapsedTime != NULL &&
           aliquot_real.cuCtxSetCurrent != NULL;
}

struct aliquot_meter *aliquot_meter_find(CUcontext context) {
    for (int i = 0; i < ALIQUOT_METERS_MAX; i++) {
        if (atomic_load_explicit(&aliquot_meters[i].context, memory_order_acquire) == context) {
            return &aliquot_meters[i];
        }
    }
    return NULL;
}

struct aliquot_meter *aliquot_meter_claim(CUcontext context, int device) {
    struct aliquot_meter *meter = aliquot_meter_find(context);
    if (meter != NULL || atomic_flag_test_and_set(&claiming_meter)) {
        return meter;
    }
    meter = aliquot_meter_find(context); /* another thread may have claimed it */
    for (int i = 0; i < ALIQUOT_METERS_MAX && meter == NULL; i++) {
        if (atomic_load(&aliquot_meters[i].context) == NULL) {
            meter = &aliquot_meters[i];
            atomic_store(&any_meter, true);
            meter->device = device;
            atomic_store(&meter->target, ALIQUOT_BATCH_LAUNCHES_MAX);
            atomic_store(&meter->context, context); /* publishes the meter */
        }
    }
    atomic_flag_clear(&claiming_meter);
    return meter;
}

void aliquot_meter_destroy_event(CUevent event) {
    if (event != NULL && aliquot_real.cuEventDestroy_v2 != NULL) {
        aliquot_real.cuEventDestroy_v2(event);
    }
}

bool aliquot_meter_ensure_reference(struct aliquot_meter *meter, CUstream stream) {
    if (atomic_load(&meter->reference) != NULL || atomic_flag_test_and_set(&meter->processing)) {
        return true;
    }
    CUevent event = NULL;
    bool recorded =
        atomic_load(&meter->reference) != NULL || (aliquot_real.cuEventCreate(&event, 0) == CUDA_SUCCESS &&
                                                   aliquot_real.cuEventRecord(event, stream) == CUDA_SUCCESS);
    if (recorded && event != NULL) {
        atomic_store(&meter->reference, event);
    } else {
        aliquot_meter_destroy_event(event);
    }
    atomic_flag_clear(&meter->processing);
    return recorded;
}

bool aliquot_meter_is_idle(struct aliquot_meter *meter, int64_t now) {
    bool idle = atomic_load(&meter->pending_batches) == 0 &&
                now - atomic_load_explicit(&meter->last_unmeasured, memory_order_relaxed) > UNMEASURED_WORK_NS;
    for (int i = 0; i < ALIQUOT_BATCHES_PER_METER && idle; i++) {
        const struct aliquot_batch *batch = &meter->batches[i];
        enum aliquot_batch_state state = ALIQUOT_BATCH_STATE(atomic_load(&batch->word));
        idle = state == BATCH_FREE || (state == BATCH_OPEN && now - atomic_load(&batch->opened) > UNMEASURED_WORK_NS);
    }
    return idle;
}

/* ---- probes ---- */

bool aliquot_meter_elapsed(CUevent from, CUevent to, double *ns) {
    float ms = 0;
    if (aliquot_real.cuEventElapsedTime(&ms, from, to) != CUDA_SUCCESS) {
        return false;
    }
    *ns = (double)ms * 1e6;
    return true;
}

void aliquot_meter_collect_probes(struct aliquot_meter *meter) {
    while (meter->oldest_pending_probe < meter->probe_count) {
        struct aliquot_probe *probe = &meter->probes[meter->oldest_pending_probe % ALIQUOT_PENDING_PROBES_MAX];
        double since = 0;
        if (aliquot_real.cuEventQuery(probe->event) != CUDA_SUCCESS) {
            return;
        }
        CUevent reference = atomic_load(&meter->reference);
        if (reference != NULL && aliquot_meter_elapsed(reference, probe->event, &since)) {
            aliquot_lateness_add_probe(&meter->lateness, meter->reference_time + since, probe->recorded_at,
                                       probe->idle);
        }
        meter->oldest_pending_probe++;
    }
}

/* The driver clamps a priority outside its range (cuda.h, cuStreamCreateWithPriority), so INT_MIN is the highest. */
static bool ensure_probe_stream(struct aliquot_meter *meter) {
    CUstream *stream = &meter->probe_stream;
    if (*stream == NULL &&
        (aliquot_real.cuStreamCreateWithPriority == NULL ||
         aliquot_real.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, INT_MIN) != CUDA_SUCCESS)) {
        *stream = NULL;
        meter->probing_failed = true;
    }
    return meter->probe_stream != NULL;
}

void aliquot_meter_record_probe(struct aliquot_meter *meter, bool idle) {
    struct aliquot_probe *probe = &meter->probes[meter->probe_count % ALIQUOT_PENDING_PROBES_MAX];
    int64_t now = aliquot_os_clock();
    if (!ensure_probe_stream(meter) ||
        (probe->event == NULL && aliquot_real.cuEventCreate(&probe->event, 0) != CUDA_SUCCESS) ||
        aliquot_real.cuEventRecord(probe->event, meter->probe_stream) != CUDA_SUCCESS) {
        return;
    }
    if (aliquot_os_clock() - now < ALIQUOT_SLOW_RECORD_NS) {
        probe->recorded_at = now;
        probe->idle = idle;
        meter->probe_count++;
    }
}
