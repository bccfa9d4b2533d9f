/** This process's role: whether it leads, by kube-scheduler's Lease. */
@NullMarked
package io.aliquot.scheduler.apiserver.leadership;

import org.jspecify.annotations.NullMarked;
