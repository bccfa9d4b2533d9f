/** The certificate that the webhooks serve: creation, renewal, and the API server's trust in it. */
@NullMarked
package io.aliquot.scheduler.admission.certificate;

import org.jspecify.annotations.NullMarked;
