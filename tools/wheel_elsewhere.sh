#!/usr/bin/env bash
# Installs a wheel of dist/ on another Debian that has nothing of ours, and runs the lines of README.md there.
#
#   tools/wheel_elsewhere.sh [release]      trixie, whose Python takes the wheel for 3.12 and later
#
# The system is made by debootstrap in build/chroot/ (as root, 300 MB, once), from its usual mirror or from
# DEBIAN_MIRROR, and has python3 and nothing else. Where PIP_CERT names the certificates of this network, pip
# gets a copy of them there.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
RELEASE=${1:-trixie}
SYSTEM=$ROOT/build/chroot/$RELEASE

if [ ! -e "$SYSTEM/usr/bin/python3" ]; then
  mkdir -p "$ROOT/build/chroot"
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$RELEASE" "$SYSTEM" \
    ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
fi
version=$(chroot "$SYSTEM" python3 -c 'import sys; print("%d%d" % sys.version_info[:2])')
abi=cp$version-cp$version
[ "$version" -lt 312 ] || abi=cp312-abi3
wheel=$(ls "$ROOT"/dist/*-"$abi"-*.whl)

work=$SYSTEM/opt/bk_jax
rm -rf "$work"
mkdir -p "$work"
cp "$wheel" "$work"
cp /etc/resolv.conf "$SYSTEM/etc/resolv.conf"
"$ROOT/.venv/bin/python" "$ROOT/tools/readme_program.py" "$ROOT/README.md" >"$work/readme.py"

cert=${PIP_CERT:-${SSL_CERT_FILE:-${REQUESTS_CA_BUNDLE:-}}}
[ -z "$cert" ] || cp "$cert" "$work/certificates.pem"
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/opt/bk_jax "${pip_settings[@]}" chroot "$SYSTEM" "$@"; }
# The package index that this machine uses, if it has another than the usual one.
mapfile -t pip_settings < <(env | grep -E '^(PIP_INDEX_URL|PIP_EXTRA_INDEX_URL|PIP_TRUSTED_HOST|PIP_DEFAULT_TIMEOUT)=' || true)
[ -z "$cert" ] || pip_settings+=(PIP_CERT=/opt/bk_jax/certificates.pem)

inside python3 -m venv --clear /opt/bk_jax/venv
inside /opt/bk_jax/venv/bin/python -m pip install --quiet "/opt/bk_jax/${wheel##*/}" dp-accounting
inside sh -c 'cd /opt/bk_jax && venv/bin/python readme.py'
inside /opt/bk_jax/venv/bin/python -m pip uninstall --quiet --yes bk_jax
left=$(find "$work/venv" -name '*bk_jax*' | wc -l)
[ "$left" -eq 0 ] || { echo "wheel_elsewhere: $left files are left" >&2; exit 1; }
echo "wheel_elsewhere: ${wheel##*/} works on Debian $RELEASE, glibc $(inside ldd --version | sed -n '1s/.* //p')"
