/** A problem that outlasts one attempt: logged once, retried with growing pauses. */
@NullMarked
package io.aliquot.deviceplugin.problem;

import org.jspecify.annotations.NullMarked;
