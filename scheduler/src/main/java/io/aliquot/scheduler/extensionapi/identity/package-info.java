/** Which user a request is from, and which replica answers it. */
@NullMarked
package io.aliquot.scheduler.extensionapi.identity;

import org.jspecify.annotations.NullMarked;
