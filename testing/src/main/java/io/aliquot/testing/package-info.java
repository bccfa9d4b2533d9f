/** A real API server for tests, and a TCP proxy that makes connections to it fail. */
package io.aliquot.testing;
