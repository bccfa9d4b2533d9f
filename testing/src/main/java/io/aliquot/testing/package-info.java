/** What tests need of a cluster where nothing less than a real one will do. */
package io.aliquot.testing;
