/**
 * The mutating webhooks. Each changes a pod's JSON tree in place
 * ({@link io.aliquot.scheduler.admission.GpuAdmission}, {@link io.aliquot.scheduler.admission.VoidAdmission}); a tree
 * keeps the fields of newer Kubernetes versions. A second call on the result, perhaps with containers that other
 * webhooks added, changes only what is new (reinvocationPolicy IfNeeded).
 */
@NullMarked
package io.aliquot.scheduler.admission;

import org.jspecify.annotations.NullMarked;
