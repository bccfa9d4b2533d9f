/** The files that the node agent and the processes of a container share, and where they are in the container. */
@NullMarked
package io.aliquot.api.shim;

import org.jspecify.annotations.NullMarked;
