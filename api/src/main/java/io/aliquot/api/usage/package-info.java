/** What a node agent reports of the use of its GPUs. */
@NullMarked
package io.aliquot.api.usage;

import org.jspecify.annotations.NullMarked;
