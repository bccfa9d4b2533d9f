/**
 * The verbs that kube-scheduler calls: filter, prioritize, bind and preempt (k8s.io/kube-scheduler/extender/v1), and
 * their JSON.
 */
@NullMarked
package io.aliquot.scheduler.extender;

import org.jspecify.annotations.NullMarked;
