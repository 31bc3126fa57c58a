#!/bin/sh
# Installs Debian packages for the tests: PostgreSQL's server, PgBouncer, the NATS server, Python, Chromium, and what reads
# the files in deploy/. It starts none of their services, creates no cluster, and leaves existing ones alone.
#
# Usage: install-packages.sh PACKAGE...
set -eu

cannot() {
    echo "The tests need these Debian packages, but $1: $packages." >&2
    echo "Install them, or the packages with the same programs on your system, and try again." >&2
    echo "If PostgreSQL is in an unusual place: cargo xtask test --pg-bin DIRECTORY" >&2
    exit 1
}

packages="$*"
command -v apt-get >/dev/null || cannot "there is no apt-get to install them with"
if [ "$(id -u)" = 0 ]; then
    as_root=
elif sudo --non-interactive true 2>/dev/null; then
    as_root="sudo --non-interactive"
else
    cannot "only root, or a sudo that asks for no password, may install them"
fi

# A package runs this program before it starts a service; exit code 101 forbids that.
policy=/usr/sbin/policy-rc.d
# Read by postgresql-common when a server package is installed.
no_cluster=/etc/postgresql-common/createcluster.d/dormouse-tests.conf

undo() {
    $as_root rm -f "$no_cluster"
    $as_root rmdir "$(dirname "$no_cluster")" 2>/dev/null || true
    if [ -n "${policy_is_ours-}" ]; then $as_root rm -f "$policy"; fi
}
trap undo EXIT
trap 'exit 1' HUP INT TERM

if [ ! -e "$policy" ]; then
    policy_is_ours=yes
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
$as_root mkdir -p "$(dirname "$no_cluster")"
echo "create_main_cluster = false" | $as_root tee "$no_cluster" >/dev/null

echo "Installing with apt-get: $packages."
install="apt-get install --yes --no-install-recommends"
$as_root apt-get update || cannot "apt-get cannot update its lists"
# shellcheck disable=SC2086 # Each is a list of words.
$as_root env DEBIAN_FRONTEND=noninteractive $install $packages || cannot "apt-get failed to install them"

# It must not start with the machine either. A server without a cluster has nothing to start.
for package in $packages; do
    case "$package" in
        pgbouncer) $as_root update-rc.d pgbouncer disable || true ;;
        nats-server | prometheus | caddy | nginx-light)
            if command -v systemctl >/dev/null; then $as_root systemctl disable "${package%-light}" || true; fi
            ;;
    esac
done
