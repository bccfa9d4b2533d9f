/** Parsers that the text formats of the other packages share. An error says what was expected and what was found. */
@NullMarked
package io.aliquot.api.format;

import org.jspecify.annotations.NullMarked;
