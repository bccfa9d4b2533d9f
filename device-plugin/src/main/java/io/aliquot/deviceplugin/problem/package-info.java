/** A problem that outlasts one attempt: logged once. */
@NullMarked
package io.aliquot.deviceplugin.problem;

import org.jspecify.annotations.NullMarked;
