/*
 * Charges the memory that graphs allocate. A graph's allocation nodes get their memory when the graph is launched or
 * uploaded, and the device keeps it for the next launch until it is trimmed. The shim therefore reserves the bytes of
 * all of them before the first launch of an executable graph, and after every graph operation adjusts the charge to
 * what the driver reports for the device's graphs.
 */
#ifndef ALIQUOT_GRAPH_H
#define ALIQUOT_GRAPH_H

#include "driver/abi.h"

/* Launches or uploads a graph after reserving the memory that it allocates. Almost free while no known graph
   allocates. A stream of NULL means the legacy default stream. */
CUresult aliquot_graph_launch(CUresult (*launch)(CUgraphExec graph, CUstream stream), CUgraphExec graph,
                              CUstream stream);

#endif
