/* A check returns whether the container may start, and else says in a sentence why not. */
#ifndef ALIQUOT_HOOK_SENTENCE_H
#define ALIQUOT_HOOK_SENTENCE_H

#include <stdbool.h>
#include <stdio.h>

#define SENTENCE_MAX 1024 /* bytes with the NUL */

/* Writes the sentence; the expression is false. */
#define REFUSE(sentence, ...) (snprintf((sentence), SENTENCE_MAX, __VA_ARGS__), false)

#endif
