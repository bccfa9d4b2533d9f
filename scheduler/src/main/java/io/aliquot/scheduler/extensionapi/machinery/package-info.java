/** What Kubernetes requires of every API group: discovery, lists, tables, selectors, watches, patches and failures. */
@NullMarked
package io.aliquot.scheduler.extensionapi.machinery;

import org.jspecify.annotations.NullMarked;
