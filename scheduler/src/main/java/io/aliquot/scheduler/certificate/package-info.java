/**
 * The certificate that the webhooks serve and that node agents expect of their client, and its authority: creation, renewal,
 * and the trust of their peers. Aliquot does this itself, because a cluster need not have a certificate manager, and no API
 * server may call a webhook with a certificate that it does not trust yet.
 */
@NullMarked
package io.aliquot.scheduler.certificate;

import org.jspecify.annotations.NullMarked;
