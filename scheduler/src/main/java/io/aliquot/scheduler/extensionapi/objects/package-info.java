/** The gpunodes, gpus and gpushares of {@code gpu.aliquot.io/v1alpha1}, made from the ledger, the watches and the agents' reports. */
@NullMarked
package io.aliquot.scheduler.extensionapi.objects;

import org.jspecify.annotations.NullMarked;
