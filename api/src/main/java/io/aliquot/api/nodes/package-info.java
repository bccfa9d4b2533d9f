/** What a node has: its GPUs as its agent reports them, and how they are shared. */
@NullMarked
package io.aliquot.api.nodes;

import org.jspecify.annotations.NullMarked;
