/* Decides whether this process is limited, and by which limit file. Before the first call nothing happens, except that
   a constructor notes which files the container's paths lead to. */
#ifndef ALIQUOT_CONFIG_H
#define ALIQUOT_CONFIG_H

#include <stdbool.h>

enum aliquot_mode {
    ALIQUOT_MODE_UNDECIDED,
    ALIQUOT_MODE_PASS,    /* not an Aliquot container: all calls are forwarded unchanged */
    ALIQUOT_MODE_BYPASS,  /* the container has whole cards only: programs call the driver directly, or through hooks
                             that forward all calls unchanged while the agent's file does not say so too */
    ALIQUOT_MODE_ENFORCE, /* the limits have been applied (account.h) */
    ALIQUOT_MODE_REFUSE,  /* limits are required but missing or invalid: cuInit fails; one line on stderr gives the
                             reason */
};

/* Returns the mode, which is decided at the first call and does not change, except from BYPASS; a forked child decides
   again. At most 10 times a second it also rereads a changed limit file, looks for what the node agent says, and
   releases the charges of dead processes, so call it only where the driver is called anyway. A changed file that cannot
   be read or parsed has no effect. */
enum aliquot_mode aliquot_config_mode(void);

/* Whether the hooks may be given up: both the limit file and the agent's file say that the container has whole cards
   only. That then holds, also for forked children, because the addresses of driver functions that are given out stay; a
   limit file that changes later has no effect. Reads these two files and nothing else, and prints nothing. `later`
   (NULL: as before) is called, perhaps by another thread, if it becomes true during a call of aliquot_config_mode(). */
bool aliquot_config_is_bypassed(void (*later)(void));

/* The file of ALIQUOT_REPORT (report.h); empty: none, as always in a container. Call it in mode ALIQUOT_MODE_ENFORCE.
 */
const char *aliquot_config_report_path(void);

#endif
