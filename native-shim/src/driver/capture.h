/* Stream capture: what a capturing stream is given becomes part of a graph and does not run. */
#ifndef ALIQUOT_CAPTURE_H
#define ALIQUOT_CAPTURE_H

#include "driver/lookup.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Captures begun less captures ended, or more. At 0 no stream captures, and the driver need not be asked. */
extern atomic_int aliquot_open_captures;

/* Slow path of aliquot_capture_may_include(). */
bool aliquot_capture_asks_driver(CUstream stream);

/* Whether the stream captures. True also if the driver does not say: then it has invalidated the capture, or rejects
   the caller's next operation on the stream, too. */
static inline bool aliquot_capture_may_include(CUstream stream) {
    return __builtin_expect(atomic_load_explicit(&aliquot_open_captures, memory_order_relaxed) > 0, 0) &&
           aliquot_capture_asks_driver(stream);
}

/* Switches the calling thread to capture mode RELAXED, in which no driver call invalidates another thread's capture.
   Returns what restores the mode; -1 if the driver has no such function (before CUDA 10.1). */
int aliquot_capture_relax_mode(void);

/* -1 does nothing. */
void aliquot_capture_restore_mode(int mode);

#endif
