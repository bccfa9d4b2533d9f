/** What pods request, and what they get. */
@NullMarked
package io.aliquot.api.pods;

import org.jspecify.annotations.NullMarked;
