/** The clients of a port that every pod can reach, and which of them gives way when the port is full. */
@NullMarked
package io.aliquot.api.ports;

import org.jspecify.annotations.NullMarked;
