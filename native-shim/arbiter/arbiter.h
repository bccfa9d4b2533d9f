/*
 * The arbiter's law, work-conserving: it computes which share of one GPU's time each container has of its own, and how
 * much of what others leave it may borrow. It reads no clock, file or NVML; the caller passes the state in and takes
 * the shares out.
 *
 * A container's own share is its cores, whatever it or others do. Only what active containers leave of the GPU is lent:
 *
 * - A container is active while it has a launch waiting or work in flight, now or in the last 40 ms. In its first 0.3 s
 *   of activity, and while its launches are held back, it demands all of its own share; later slightly more than the
 *   most that it would have used lately, a peak that halves in a second. An idle container demands nothing. What it
 *   would have used: if it used the part u of the time and its launches were waiting or running for the part b, the
 *   program did something else for 1 - b, so that it would use u / (u + 1 - b) if it never waited. The part that it
 *   used alone would follow what others leave it.
 * - The surplus is what the active containers do not demand of the GPU. It goes to the elastic ones that claim more
 *   than their own share, those of a higher priority first, by weighted max-min fairness with cores as weights
 *   (Bertsekas and Gallager, Data Networks, 6.5.2). What no container claims may be borrowed by any elastic one that
 *   launches.
 * - A claim of which less than half is used for 2 s lapses for 2 s, the next time for twice as long. A container then
 *   claims what it uses.
 *
 * Each switch of the GPU between processes costs it time, so containers that keep work queued take turns in rounds of
 * 80 ms (aliquot/agent.h), each as long as what it gets of the GPU: while one launches, the others' launches wait.
 *
 * - A container keeps work queued if, for nine tenths of a second, its launches waited or ran, and some of them waited
 *   behind work that its program had not waited for. One that waits for each launch, has requests now and then, or
 *   returns to work launches at any time what its own share allows. So does one of high priority.
 * - One that always has work and yet gets less than its cores for two seconds falls short, such as a program that waits
 *   for each kernel beside one that does not: it takes turns, too.
 * - There are turns if two containers take them, of which one keeps work queued, and all containers of the GPU have
 *   limits. A container with launches of more than 5 ms takes none, since its turn would not end when it should; while
 *   it keeps work queued no one does, since it would take from the turn that is then. One that works on several GPUs
 *   takes none, since its kernels may wait for each other.
 *
 * A container of low priority gives way whenever one of high priority has work on the GPU; the caller looks every
 * millisecond. Its turn has no length then, unless it used less than its floor in the last
 * 10 s. So each of the two may borrow what the other demands. That a container of high priority has work is what it
 * says itself. It is believed for 10 percent of the time, and while NVML shows at least a tenth of it; after a second
 * more than that, it makes none give way for 2 s, the next time for twice as long, up to 64 s. NVML's figures are of
 * the last second, and come once a second, so a false claim holds others back for 3 s, a little longer if a part is
 * true. Without NVML's figure the container's own is believed.
 *
 * If the cores of all containers add up to more than the GPU, all own shares are scaled down by the same factor. No
 * own share depends on what containers say of themselves.
 *
 * The shim enforces a share by its own accounting: the GPU time that it measured. NVML's figures do not correct it: of
 * two busy processes an H200 and an H100 showed 99 percent for each.
 */
#ifndef ALIQUOT_ARBITER_H
#define ALIQUOT_ARBITER_H

#include "limits/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARBITER_PERIOD_NS 20000000 /* of arbiter_divide */

enum arbiter_priority { ARBITER_LOW, ARBITER_NORMAL, ARBITER_HIGH, ARBITER_PRIORITIES };

/* Shares are fractions of the GPU's time. */
struct arbiter_container {
    /* The limit. cores 0: no own share if the policy is elastic, else no limit. */
    double cores;
    enum aliquot_policy policy;
    enum arbiter_priority priority;
    double floor; /* what it keeps, if it is of low priority, while one of high priority has work */
    bool on_several_gpus;

    /* Observed by the caller. */
    bool active;        /* a launch waits or work is in flight, now or in the last 40 ms */
    bool held_back;     /* the shim recently held back a launch */
    bool queued;        /* one waited lately behind work that the program had not waited for */
    bool long_launches; /* a launch of the last second was too long for a turn */
    double used;        /* in the last period, by the shim's accounting, which the container can forge */
    double busy;        /* part of the last period in which launches waited or ran, which it can forge, too */
    double nvml_used;   /* lately, by NVML; negative: unknown */

    /* The arbiter's state; starts as zeros. */
    double mean, mean_busy; /* of used and busy, lately */
    double peak;            /* decaying maximum of what it would use if it never waited */
    unsigned active_for;    /* periods */
    unsigned unused_for;    /* periods in which less than half of its claim was used */
    struct {
        unsigned periods, queued; /* so far; in which launches were queued */
        double used, busy;        /* sums over them */
    } second;
    bool keeps_queued, falls_short; /* in the last second */
    unsigned short_for;             /* seconds in a row in which it always had work and used less than its share */
    double beyond_floor;            /* seconds of GPU time that it used in the last 10 s beyond the floor */
    double kept;                    /* seconds of the period for which it kept its turn beside one of high priority */
    double said, said_before;       /* seconds of work of high priority that it said since the last confirmation, ... */
    double shown_before;            /* ... and before it; what NVML's figure then could confirm */
    double unconfirmed;             /* seconds of work that it said and NVML did not confirm */
    double distrusted_for;          /* seconds for which it makes none give way */
    double distrust;                /* the same the last time, less what was confirmed since */
    unsigned lapsed_for, pause;     /* periods for which it claims what it uses, and will the next time */
    double claim, fair;             /* beyond the own share: what it wants, and what it gets of that */

    /* The result, not yet rounded to millionths. Both 0: the container has no limit. */
    double own;
    double borrowed;          /* 1: as much as it likes */
    double turn_begins, turn; /* its turn, in parts of a round; turn 1: always */
    bool waits;               /* it launches in its turn alone, or in bursts if that is always; else at any time */
};

/* Whether the container has a limit, so that it gets a grant. */
bool arbiter_is_limited(const struct arbiter_container *container);

/* Sets the shares of the containers of a GPU. The caller calls it every 20 ms. */
void arbiter_divide(struct arbiter_container *containers, size_t count);

/* Whether a container of high priority makes those of low priority give way now. works: it has work on the GPU, or says
   so; seconds: since the last call. */
bool arbiter_preempts(struct arbiter_container *container, bool works, double seconds);

/* The length of a container's turn in parts of a round. gives_way: to one of high priority; seconds: since the last
   call. */
double arbiter_turn(struct arbiter_container *container, bool gives_way, double seconds);

/* Compares the work that a container of high priority said with nvml_used. The caller calls it about every second, with
   the seconds since the last call. */
void arbiter_confirm(struct arbiter_container *container, double seconds);

#endif
