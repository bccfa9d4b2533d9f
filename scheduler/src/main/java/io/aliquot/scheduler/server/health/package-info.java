/** What probes and Prometheus read: {@link Liveness} and {@link Readiness} beans of other packages, and metrics. */
@NullMarked
package io.aliquot.scheduler.server.health;

import org.jspecify.annotations.NullMarked;
