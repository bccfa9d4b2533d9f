/**
 * Pods that wait for a GPU: what they request, where they may go, and when kube-scheduler is made to retry them.
 */
@NullMarked
package io.aliquot.scheduler.pending;

import org.jspecify.annotations.NullMarked;
