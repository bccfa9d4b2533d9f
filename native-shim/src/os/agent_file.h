/*
 * The agent's file as this process sees it. Programs in the container can read it and not write it, so it is where the
 * node agent says what must hold against the container. aliquot/agent.h describes the layout.
 */
#ifndef ALIQUOT_AGENT_FILE_H
#define ALIQUOT_AGENT_FILE_H

#include "aliquot/agent.h"
#include "os/os.h"

#include <stdbool.h>
#include <stdint.h>

/* An entry of zeros, which stands for a GPU of which the agent has said nothing. */
extern const struct aliquot_agent_device aliquot_agent_nothing;

/* Maps the file, unless it is mapped. False: it is missing, unreadable, not of this version or not the expected one
   (NULL: any), and every GPU has the entry aliquot_agent_nothing. */
bool aliquot_agent_open(const char *path, const struct aliquot_os_file *expected);

/* What the container holds: ALIQUOT_AGENT_HOLDS_...; 0: not known. */
uint32_t aliquot_agent_holds(void);

/* The GPU's entry, or &aliquot_agent_nothing while it has none. An entry stays where it is. Read its values with
   atomic loads: the agent may write them at any time. */
const struct aliquot_agent_device *aliquot_agent_device(const uint8_t uuid[16]);

/* Whether the agent has written what is unattributed within ALIQUOT_AGENT_MAX_AGE_MS. now: aliquot_os_clock(). */
bool aliquot_agent_is_current(const struct aliquot_agent_device *device, int64_t now);

/* Whether a word of the arbiter was written at most max_age (ns) ago. now: aliquot_os_clock(). */
bool aliquot_agent_is_fresh(uint64_t word, int64_t now, int64_t max_age);

/* Unmaps the file in a forked child. Entries found before are invalid. */
void aliquot_agent_reset(void);

#endif
