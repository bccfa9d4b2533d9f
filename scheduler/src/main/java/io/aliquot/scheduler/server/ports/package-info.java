/**
 * The process's four ports. Only kube-scheduler reaches the extender verbs, on localhost; the API server reaches the
 * webhooks over TLS; health and metrics are open to all; users with a token of the cluster reach the API over TLS. A
 * path is served on its own port only.
 *
 * <p>Other packages provide controllers for the paths in {@link PortPolicy} and the certificate for {@link TlsCertificate}.
 */
@NullMarked
package io.aliquot.scheduler.server.ports;

import org.jspecify.annotations.NullMarked;
