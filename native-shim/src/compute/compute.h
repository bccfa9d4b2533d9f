/*
 * The compute limit: how much GPU time this container's processes may use.
 *
 * The unit is GPU time, not launches or blocks. Each launch is charged the learned cost of its function (cost.h) to one
 * word per container and GPU in the region (gcra.h). While the container exceeds its share, the launching thread
 * sleeps. The GPU time really used is measured afterwards by timing events around batches of launches (measure.h),
 * without waiting for them, and the word is adjusted by the difference.
 *
 * Cost of a launch: without limits a relaxed load and a predicted branch; with limits a query of the current context, a
 * lookup in the cost table and a subtraction from what this thread has charged in advance (50 us of GPU time at a
 * time); per advance one read of the coarse clock and two compare-and-swaps. A launch that is not throttled never waits
 * for a lock, another thread or the GPU.
 *
 * Bounds: while throttled, a container has at most ALIQUOT_GCRA_BURST_NS of unfinished estimated work plus one launch
 * on the GPU; between ranks (below), also what its share earns in 0.2 s, or in 1 s for collectives. No launch waits
 * longer than ALIQUOT_GCRA_WAIT_MAX_NS, and no debt is larger once work was measured. A share too small to repay a
 * kernel within that time (for a 20 ms kernel: 1 percent) is therefore exceeded.
 *
 * Time that others leave, an elastic container may use beyond its share, as far as the arbiter's word allows (gcra.h).
 * Of such work, at most 5 ms or one launch is in flight, so that the others get the GPU back soon. Where the arbiter
 * gives the container turns (agent.h), the same holds for all its work, and launches wait until a turn begins: for as
 * long as it takes, which for a container of low priority beside one of high priority can be longer than the bound
 * above.
 *
 * Kernels that wait on their GPUs for each other, such as NCCL's collectives: while one rank is held back, its peers'
 * kernels keep their GPUs busy. So where several GPUs are limited, or a thread launches collectives, ranks are held
 * back alike:
 * - Each launch waits until all before it has been earned, instead of many running and one waiting long. Otherwise one
 *   rank would be held back before a collective and its peer after it, and each would wait for the other.
 * - A thread that launches on several GPUs in turn waits when it comes back to the first one, until it owes nothing on
 *   any of them; one that launches collectives, at the first launch after one. The other launches of such a step may
 *   exceed the share by 0.2 s, so those of a group (ncclGroupEnd) are not held back one after the other. After 0.1 s a
 *   thread waits like any other, or other threads of the container, which let less be earned, would keep it waiting.
 *   One that launched no collective and on no other GPU for a second does not work in steps.
 * - The cost of launches is that of the shortest ones. What they take longer, they may have waited. It is charged in
 *   full, but over a second (aliquot_compute_charge_waiting() says why).
 * - Collectives are recognized by the attribute that NCCL gives them (memory synchronization domain REMOTE) or by their
 *   function's name. They are measured one by one, and held back for 0.1 s at most, unless they are as long themselves
 *   or 1 s is owed. Where probes say nothing (measure.h), half of what they take longer is charged. One that overlaps
 *   other work teaches nothing.
 *
 * No write to the region frees a process from its own share: each process keeps a private word besides the shared one.
 * Such a write can hide the container's processes from each other, or throttle them within the bounds.
 *
 * Programs that measure kernels by pairs of timing events, such as autotuners, would take the time for which a launch
 * is throttled for GPU time and choose a wrong kernel. So a thread that has little room left waits before the first
 * event of such a pair; launches until the second then find room for at least half of ALIQUOT_GCRA_BURST_NS.
 *
 * Launches inside a stream capture are not charged, measured or delayed: the graph is charged as a whole whenever it is
 * launched.
 *
 * Source of the idea: Turner, "New Directions in Communications" (1986), the leaky bucket as a meter; ITU-T I.371.
 */
#ifndef ALIQUOT_COMPUTE_H
#define ALIQUOT_COMPUTE_H

#include "limits/account.h"

#include <stdbool.h>
#include <stdint.h>

/* For the hooks of launches. Devices are numbered as in account.h. */

/* Determines aliquot_account_compute if it is unknown, and rereads the limit file if it has changed. Returns the
   former. */
int aliquot_compute_refresh(void);

/* Charges a launch of cost nanoseconds of GPU time. debt: the time (ns) by which what was charged before may exceed
   ALIQUOT_GCRA_BURST_NS. False: the launch must be throttled, until the time *until of aliquot_os_clock(), and nothing
   was charged. */
bool aliquot_compute_try_charge(int device, uint64_t cost, int64_t debt, int64_t *until);

/* Whether the container must not launch now, because its turn is later. */
bool aliquot_compute_waits_for_turn(int device);

/* Whether a launch that is throttled waits until all before it has been earned, because the container keeps work queued
   and need not wait for a turn: its kernels then overlap as without a limit. */
bool aliquot_compute_launches_in_bursts(int device);

/* Whether the container takes turns or may borrow, so that it has little work in flight. */
bool aliquot_compute_has_little_in_flight(int device);

/* GPU time (ns) that this process can be charged before a launch is throttled. INT64_MAX: no limit holds now. */
int64_t aliquot_compute_room(int device);

/* Adjusts a charge by the difference (nanoseconds) between the GPU time used and charged. A failed launch used none. */
void aliquot_compute_adjust(int device, int64_t difference);

/* Charges nanoseconds in which kernels probably waited on the GPU for their peers on other GPUs: the container does not
   earn in that time, and owes the rest, which is charged little by little with each call of aliquot_compute_repay(). */
void aliquot_compute_charge_waiting(int device, uint64_t nanoseconds);

/* Charges a part of what is owed for waiting: after a second of calls, two thirds of it. */
void aliquot_compute_repay(int device);

/* Adds used GPU time to the figures in the region: as measured, or as charged if it is not measured. */
void aliquot_compute_add_used(int device, uint64_t nanoseconds);

/* Notes in the region that a launch waits behind work that its thread has not waited for: the program keeps work
   queued. Seen where a launch is held back, and where a batch begins (measure.h) while two of the thread are
   unfinished. */
void aliquot_compute_record_queued(int device);

/* Adds the time for which this thread was throttled. */
void aliquot_compute_add_throttled(int device, int64_t nanoseconds);

/* Adds the time for which launches waited for the GPU or ran there. */
void aliquot_compute_add_busy(int device, int64_t nanoseconds);

/* Adds to the estimated work on the GPU: positive when a batch is submitted, 0 now and then while it has not finished,
   so that the region says that it is still in flight. Returns the sum of all charges of launches (ns) so far. */
uint64_t aliquot_compute_add_unfinished(int device, int64_t nanoseconds);

/* Subtracts a batch that has finished from the work on the GPU. launched: the sum when it was submitted; what was
   launched later, measured or not, is still in flight. */
void aliquot_compute_finished(int device, uint64_t nanoseconds, uint64_t launched);

/* Whether the arbiter says that this process has been the only one that uses the GPU since a time of
   aliquot_os_clock(), or longer. False while another process of the container is active, and without an arbiter. */
bool aliquot_compute_was_alone(int device, int64_t since);

/* Whether the arbiter says that this process is the only one that uses the GPU now. */
bool aliquot_compute_is_alone(int device);

#endif
