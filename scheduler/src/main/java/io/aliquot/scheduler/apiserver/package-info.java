/**
 * The adapter: the code that talks to the API server. It implements what package {@code cluster} asks, and feeds the
 * ledger with what the watches bring. {@code client} has the HTTP requests, {@code watch} the watches, {@code reader} what
 * their objects say, {@code leadership} this process's role.
 */
@NullMarked
package io.aliquot.scheduler.apiserver;

import org.jspecify.annotations.NullMarked;
