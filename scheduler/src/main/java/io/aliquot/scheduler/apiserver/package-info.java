/**
 * The API server as the scheduler needs it. Package {@code kubernetes} implements it.
 */
@NullMarked
package io.aliquot.scheduler.apiserver;

import org.jspecify.annotations.NullMarked;
