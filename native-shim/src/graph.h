/*
 * What graphs allocate. A graph's allocations get their memory when it is launched (or uploaded), and the device keeps
 * it for the next launch until it is trimmed. So room for all of them is reserved before an executable graph's first
 * launch, and after every operation on graphs the charge is trued up to what the driver says that they hold.
 */
#ifndef ALIQUOT_GRAPH_H
#define ALIQUOT_GRAPH_H

#include "abi.h"

/* Launches a graph, with room for what it allocates. Costs next to nothing while no graph is known that does. A stream
   of NULL means the legacy default stream. */
CUresult aliquot_graph_launch(CUresult (*launch)(CUgraphExec graph, CUstream stream), CUgraphExec graph,
                              CUstream stream);

/* What graphs kept for their next launch may be gone. */
void aliquot_graph_was_trimmed(void);

/* In a forked child. */
void aliquot_graph_reset(void);

#endif
