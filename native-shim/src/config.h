/* Decides whether this process is limited, and by which limit file. Nothing happens before the first call. */
#ifndef ALIQUOT_CONFIG_H
#define ALIQUOT_CONFIG_H

#include <stdbool.h>

enum aliquot_mode {
    ALIQUOT_MODE_UNDECIDED,
    ALIQUOT_MODE_PASS,    /* not an Aliquot container: all calls are forwarded unchanged */
    ALIQUOT_MODE_BYPASS,  /* the container has whole cards only: programs call the driver directly */
    ALIQUOT_MODE_ENFORCE, /* the limits have been applied (account.h) */
    ALIQUOT_MODE_REFUSE,  /* limits are required but missing or invalid: cuInit fails; one line on stderr gives the
                             reason */
};

/* Returns the mode, which is decided at the first call and never changes; a forked child decides again. Also does what
   aliquot_config_check() does if nothing did it for 125 ms, so call it only where the driver is called anyway. */
enum aliquot_mode aliquot_config_mode(void);

/* At most 10 times a second, where limits apply: rereads a changed limit file, looks for what the node agent says, and
   releases the charges of dead processes. A changed file that cannot be read or parsed has no effect. The helper thread
   calls it, so that launching threads need not wait for the file system. */
void aliquot_config_check(void);

/* Whether the mode is ALIQUOT_MODE_BYPASS. Decided before the first address of a driver function is given out, and kept
   by forked children, because the addresses given out stay: a limit file that changes later has no effect on it. Reads
   the limit file and nothing else, and prints nothing. */
bool aliquot_config_is_bypassed(void);

#endif
