/* Whether, and by which limit file, this process is limited. Nothing happens before the first question. */
#ifndef ALIQUOT_CONFIG_H
#define ALIQUOT_CONFIG_H

enum aliquot_mode {
    ALIQUOT_MODE_UNDECIDED,
    ALIQUOT_MODE_PASS,    /* not a container of ours: everything goes through untouched */
    ALIQUOT_MODE_ENFORCE, /* limits are known to account.h */
    ALIQUOT_MODE_REFUSE,  /* they should be and aren't: CUDA does not start; one line on stderr has said why */
};

/* Decided at the first call and never changed (a forked child decides anew). Also looks, at most 10 times a second,
   whether the limit file has changed, and cleans up after dead processes: for paths that end in the driver. A changed
   file that can't be read or parsed changes nothing. */
enum aliquot_mode aliquot_config_mode(void);

#endif
