/*
 * Reports what the compute limit has learned about a program: the costs of its launches, and how many of its events
 * were late. For finding out why a share is wrong (docs/acceptance.md).
 *
 * The environment variable ALIQUOT_REPORT names a file. When a process whose launches were measured exits, it appends
 * one line of JSON. In an Aliquot container the variable has no effect.
 */
#ifndef ALIQUOT_REPORT_H
#define ALIQUOT_REPORT_H

/* Call when the process exits and its helper thread has ended. Without a path it does nothing. */
void aliquot_report_write(void);

#endif
