# shellcheck shell=bash
# Sources all parts of ./aliquot; each may use the ones before it.
here=$(dirname "${BASH_SOURCE[0]}")
. "$here/common.sh"
. "$here/prerequisites.sh"
. "$here/build.sh"
. "$here/layers.sh"
. "$here/images.sh"
. "$here/namespaces.sh"
. "$here/cluster.sh"
. "$here/node.sh"
. "$here/vm.sh"
. "$here/other-plugin.sh"
. "$here/install.sh"
. "$here/conformance.sh"
. "$here/release.sh"
. "$here/test.sh"
