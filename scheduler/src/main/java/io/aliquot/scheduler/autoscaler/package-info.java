/** What node autoscalers make of nodes with shares, and how such nodes are kept while pods need them. */
@NullMarked
package io.aliquot.scheduler.autoscaler;

import org.jspecify.annotations.NullMarked;
