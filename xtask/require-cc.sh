#!/bin/sh
# Finds a C compiler, or installs one if that works without asking the user.
#
# A script, and not a part of xtask, because rustc links with `cc` too: xtask cannot be built without one.
set -eu

missing() {
    echo "The bundled SQLite and rustc's linking need a C compiler, but there is no \`cc\` on the path." >&2
    echo "Install gcc and the C library's headers. Debian and Ubuntu: apt-get install gcc libc6-dev;" >&2
    echo "Fedora: dnf install gcc glibc-devel; Alpine: apk add gcc musl-dev; macOS: xcode-select --install." >&2
    exit 1
}

if cc --version >/dev/null 2>&1; then exit 0; fi
command -v apt-get >/dev/null || missing
if [ "$(id -u)" = 0 ]; then
    as_root=
elif sudo --non-interactive true 2>/dev/null; then
    as_root="sudo --non-interactive"
else
    missing
fi

echo "There is no \`cc\` on the path: installing gcc and libc6-dev."
$as_root apt-get update || missing
$as_root apt-get install --yes --no-install-recommends gcc libc6-dev || missing
