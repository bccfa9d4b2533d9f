/**
 * What kube-scheduler asks of us: filter, prioritize, bind and preempt (k8s.io/kube-scheduler/extender/v1). {@link
 * Cluster} is what the verbs need of the API server.
 */
@NullMarked
package io.aliquot.scheduler.extender;

import org.jspecify.annotations.NullMarked;
