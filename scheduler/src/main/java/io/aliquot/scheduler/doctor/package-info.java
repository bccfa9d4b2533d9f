/**
 * {@code aliquot doctor}: what is wrong with an installation, one sentence for each finding. A program of its own, without
 * Spring: it reads the cluster once, and works while the scheduler does not.
 */
@NullMarked
package io.aliquot.scheduler.doctor;

import org.jspecify.annotations.NullMarked;
