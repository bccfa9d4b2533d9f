/**
 * The certificate that the webhooks serve and that node agents expect of their client, and the one of the node agents:
 * creation, renewal, and the trust of their peers.
 */
@NullMarked
package io.aliquot.scheduler.certificate;

import org.jspecify.annotations.NullMarked;
