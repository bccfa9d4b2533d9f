/* What a check finds. */
#ifndef ALIQUOT_HOOK_VERDICT_H
#define ALIQUOT_HOOK_VERDICT_H

#include <stdio.h>

enum verdict {
    VERDICT_RIGHT,
    VERDICT_REPORTED, /* the container starts, and the sentence says what was found */
    VERDICT_REFUSED   /* the container does not start, and the sentence says why */
};

#define SENTENCE_MAX 1024 /* bytes with the NUL */

/* Writes the sentence of a verdict, which is an expression. */
#define SAY(verdict, sentence, ...) (snprintf((sentence), SENTENCE_MAX, __VA_ARGS__), (verdict))

#endif
