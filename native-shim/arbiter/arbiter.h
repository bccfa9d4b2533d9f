/*
 * The reference arbiter's algorithm: it computes the share of one GPU's time that each container gets. It reads no
 * clock, file or NVML; the caller passes the state in and takes the shares out.
 *
 * Every 20 ms arbiter_divide divides the GPU by weighted max-min fairness, with cores as weights (Bertsekas and
 * Gallager, Data Networks, 6.5.2). The demand of a container whose launches were held back is all that it may have; the
 * demand of any other container is slightly more than it used. A fixed container never gets more than its cores. Time
 * that no container demands goes to the elastic containers in proportion to their cores. If the cores of the active
 * containers add up to more than the GPU, all are scaled down by the same factor.
 *
 * The shim enforces a share by its own accounting: the GPU time that it measured. Once a second arbiter_trim compares
 * this with NVML. If both show that the container misses its share because the shim's accounting is wrong, the trim, an
 * integral controller, corrects the share. An error with another cause must not wind up the controller: the GPU was too
 * busy, the container repays debt, or it did not want its share. NVML alone is not sufficient: its figures are whole
 * percents, over periods that differ from the arbiter's and between processes (NVIDIA/go-nvml#51). The trim corrects an
 * error only if two seconds in a row show it.
 *
 * The node agent's arbiter is a port of this one.
 */
#ifndef ALIQUOT_ARBITER_H
#define ALIQUOT_ARBITER_H

#include "limits/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shares are fractions of the GPU's time. */
struct arbiter_container {
    /* The limit. cores 0: no limit. */
    double cores;
    enum aliquot_policy policy;

    /* Observed by the caller. */
    bool active;    /* it launched recently */
    bool held_back; /* the shim recently held back a launch */
    double used;    /* recently, by the shim's accounting */

    /* The arbiter's state; starts as zeros. */
    double target;                 /* the share that the container should get */
    double trim;                   /* correction factor of the target; 0: not set yet, means 1 */
    double error;                  /* in the last second, relative to the target; 0: none, or unknown */
    double targets;                /* sum of the targets since the last trim */
    unsigned divisions, saturated; /* divisions since the last trim, and those of them in which it was held back */

    /* The result: the share to write as a grant, not yet rounded to millionths; 0: write no grant. */
    double share;
};

/* Sets the share of each container. The caller calls it every 20 ms. */
void arbiter_divide(struct arbiter_container *containers, size_t count);

/* Adjusts the trim. The caller calls it every second, with the container's GPU time since the last call as a fraction
   of that second: by NVML (negative if NVML has no sample of the container) and by the shim's accounting. */
void arbiter_trim(struct arbiter_container *container, double nvml_share, double accounted_share);

#endif
