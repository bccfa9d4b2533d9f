/** HTTP requests to the API server: a blocking client, lists and watches, and single writes. */
@NullMarked
package io.aliquot.scheduler.apiserver.client;

import org.jspecify.annotations.NullMarked;
