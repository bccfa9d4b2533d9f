/** HTTP requests to the API server: a blocking client, lists and watches, and single writes. */
@NullMarked
package io.aliquot.scheduler.kubernetes.client;

import org.jspecify.annotations.NullMarked;
