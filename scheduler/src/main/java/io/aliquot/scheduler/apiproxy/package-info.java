/**
 * The program {@code aliquot-api}: what stands between the API server and the scheduler's aggregated API, so that discovery
 * is answered while no scheduler is.
 */
@NullMarked
package io.aliquot.scheduler.apiproxy;

import org.jspecify.annotations.NullMarked;
