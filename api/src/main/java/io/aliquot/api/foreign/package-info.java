/** Resources, annotations and allocations of other products, such as HAMi and ACK, in terms of ours. */
@NullMarked
package io.aliquot.api.foreign;

import org.jspecify.annotations.NullMarked;
