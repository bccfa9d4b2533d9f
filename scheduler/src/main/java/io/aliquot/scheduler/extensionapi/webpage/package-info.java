/** The files of the web page. */
@NullMarked
package io.aliquot.scheduler.extensionapi.webpage;

import org.jspecify.annotations.NullMarked;
