/**
 * The aggregated API {@code gpu.aliquot.io/v1alpha1}: gpunodes, gpus and gpushares as Kubernetes objects, with lists,
 * tables, watches and the live resize. The API server authenticates and authorizes each caller before it forwards a
 * request.
 */
@NullMarked
package io.aliquot.scheduler.extensionapi;

import org.jspecify.annotations.NullMarked;
