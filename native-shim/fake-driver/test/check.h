/* The check that all tests of the driver share, including the programs that nvcc compiles. */
#ifndef ALIQUOT_FAKE_CHECK_H
#define ALIQUOT_FAKE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition);                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
