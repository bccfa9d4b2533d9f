/** What objects of the API server say, in the words of the ledger and of the other packages. */
@NullMarked
package io.aliquot.scheduler.apiserver.reader;

import org.jspecify.annotations.NullMarked;
