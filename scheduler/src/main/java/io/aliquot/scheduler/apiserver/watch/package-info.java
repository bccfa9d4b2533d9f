/** Keeps watches on the API server's objects running: the informer, its health check and its latency. */
@NullMarked
package io.aliquot.scheduler.apiserver.watch;

import org.jspecify.annotations.NullMarked;
