/** GPUs and limits of a container in one specification of the Container Device Interface (tags.cncf.io/container-device-interface). */
@NullMarked
package io.aliquot.deviceplugin.cdi;

import org.jspecify.annotations.NullMarked;
