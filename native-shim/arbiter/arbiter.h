/*
 * Who may use how much of one GPU's time: the decision alone, state in and shares out, without clock, file or NVML.
 *
 * Every 20 ms the GPU is divided by what each container wants: weighted max-min fairness with cores as weights
 * (Bertsekas and Gallager, Data Networks, 6.5.2). A container that was held back wants all it may have, another a
 * little more than it used. A fixed container never gets more than its cores; what nobody wants goes to the elastic
 * ones in proportion. Where the cores of those who want are more than the GPU, all are scaled down alike.
 *
 * The shim in a container keeps to its share by its own books: GPU time that it measured. Each second they are compared
 * with what NVML saw, and where both agree that the share is missed because the books are wrong, it is trimmed, as an
 * integral controller does. So what has other reasons winds nothing up: the GPU was too busy, a debt is being repaid,
 * the container didn't want its share. NVML alone decides nothing, since its figures are whole percents of periods that
 * are not ours and differ from process to process (NVIDIA/go-nvml#51). An error counts when two seconds agree on it.
 *
 * The node agent's arbiter is a port of this.
 */
#ifndef ALIQUOT_ARBITER_H
#define ALIQUOT_ARBITER_H

#include "limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shares are fractions of the GPU's time. */
struct arbiter_container {
    /* What it was granted. cores 0: no limit. */
    double cores;
    enum aliquot_policy policy;

    /* What was seen. */
    bool wants;     /* a launch came lately */
    bool held_back; /* and had to wait lately */
    double used;    /* lately, by the container's own books */

    /* The arbiter's own; zeros at first. */
    double target; /* the share that it should get */
    double trim;
    double error;              /* of the last second, relative to the target; 0: none, or not known */
    double targets;            /* sum over the divisions since the last trim */
    unsigned divisions, waits; /* how many, and how many of them it was held back */

    /* What comes out of it: the share to write, before it is clamped to millionths; 0: nothing is to be written. */
    double share;
};

/* Every 20 ms. */
void arbiter_divide(struct arbiter_container *containers, size_t count);

/* Each second: what NVML saw it use since the last time, negative if it saw nothing of it; and what its books say. */
void arbiter_trim(struct arbiter_container *container, double seen, double booked);

#endif
