# Where the guest's kernel is kept; sourced by the scripts beside it.
# The folder's name is a hash of what decides the result: the configuration, the source, and a
# number to raise when build.sh is changed so that something else comes out. Debian's patch level
# is not part of it: a new one is no reason to build again, and an old one cannot be fetched any more.

verbs_source=linux-source-6.1
verbs_revision=2
verbs_tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
verbs_key=$({ echo "$verbs_source $verbs_revision"; cat "$verbs_tools/kernel.config"; } | sha256sum | cut -c 1-16)
verbs_cache=${FOREBAY_VERBS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/forebay/verbs}
verbs_place=$verbs_cache/$verbs_key
