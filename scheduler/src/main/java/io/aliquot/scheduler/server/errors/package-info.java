/** The answers to requests that failed. */
@NullMarked
package io.aliquot.scheduler.server.errors;

import org.jspecify.annotations.NullMarked;
