/** A real API server and a real browser for tests, and a TCP proxy that makes connections fail. */
package io.aliquot.testing;
