/**
 * Which pod holds how much of which GPU. The watches report nodes and pods; the verbs reserve, commit and release. The
 * package knows neither HTTP nor a Kubernetes client nor the scoring of nodes, and the cost of an answer does not depend
 * on the number of pods.
 */
@NullMarked
package io.aliquot.scheduler.ledger;

import org.jspecify.annotations.NullMarked;
