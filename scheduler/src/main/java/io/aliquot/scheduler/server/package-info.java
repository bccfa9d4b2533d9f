/**
 * The process's four ports. kube-scheduler alone reaches the extender verbs, on localhost; the API server reaches the
 * webhooks over TLS; everybody may look at health and metrics; users with a token of the cluster reach the API over TLS.
 * A path answers on its own port only.
 *
 * <p>Other packages bring {@link Verbs} for the extender's port and controllers for the others' paths, which {@link Door}
 * lists, a {@link CertificateSource} for TLS, and {@link Readiness} and {@link Liveness} beans.
 */
@NullMarked
package io.aliquot.scheduler.server;

import org.jspecify.annotations.NullMarked;
