#!/usr/bin/env bash
# Runs one function of the lab's files: the first process of the namespaces that `contained` (common.sh) makes for it.
. "$(dirname "$0")/all.sh"
"$@"
