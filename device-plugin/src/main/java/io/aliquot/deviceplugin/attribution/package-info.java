/** Which container has which processes, cgroup, slot and limits, as the kernel, the kubelet and the scheduler say. */
@NullMarked
package io.aliquot.deviceplugin.attribution;

import org.jspecify.annotations.NullMarked;
