/** TLS of all programs: contexts from keys, authorities and certificates that are known as they are. */
@NullMarked
package io.aliquot.api.tls;

import org.jspecify.annotations.NullMarked;
