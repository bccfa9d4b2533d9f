#!/usr/bin/env bash
# Runs one function of the lab's scripts, as the first process of the namespaces that `contained` (common.sh) makes.
. "$(dirname "$0")/all.sh"
"$@"
