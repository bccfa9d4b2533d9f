/**
 * The mutating webhooks, and the certificate that the API server trusts them by. What they do to a pod is a function
 * from JSON tree to JSON tree ({@link io.aliquot.scheduler.admission.GpuAdmission}): a tree, so that fields newer than us
 * survive. Asked again about its own result, possibly with containers that other webhooks added, it changes only what is
 * new (reinvocationPolicy IfNeeded).
 */
@NullMarked
package io.aliquot.scheduler.admission;

import org.jspecify.annotations.NullMarked;
