/** Lends idle GPU time: runs the arbiter, a program beside this one, and tells it which containers use which GPU. */
@NullMarked
package io.aliquot.deviceplugin.arbiter;

import org.jspecify.annotations.NullMarked;
