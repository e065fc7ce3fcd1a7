#!/bin/sh
# Makes .venv/ ready from the hash-pinned locks: `setup.sh all` for the product with every extra,
# `setup.sh dev` for the tools of a developer too. Needs python3 and nothing else; a missing pip,
# venv or sandbox package is installed where that is allowed, and named where it is not.
set -eu
cd "$(dirname "$0")/.."

lock=${1:-all}
venv=.venv
work=

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
cleanup() { if [ -n "$work" ]; then rm -rf "$work"; fi; }
trap cleanup EXIT

# The words that make a command run as root; fails where that needs a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif have sudo && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

apt_install() {
    have apt-get || return 1
    set -- env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 -o Dpkg::Use-Pty=0 install "$@"
    # Package lists may be missing or old: try, refresh them, try once more.
    as_root "$@" >/dev/null 2>&1 || { as_root apt-get -qq update && as_root "$@"; } >/dev/null 2>&1
}

find_python() {
    for python in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if have "$python" && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            return 0
        fi
    done
    die "no Python 3.11 or newer found; install one, or set PYTHON to its path"
}

# A pip without root: Debian keeps it as a wheel in python3-pip-whl, which anyone may download.
# The lists are kept in a folder of our own, because only root may refresh the system's.
fetch_pip_wheel() {
    for wheel in /usr/share/python-wheels/pip-*.whl; do
        if [ -e "$wheel" ]; then return 0; fi
    done
    have apt-get && have dpkg-deb || return 1
    work=$(mktemp -d)
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    set -- -qq -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o Acquire::Retries=2
    (cd "$work" && apt-get "$@" update && apt-get "$@" download python3-pip-whl ca-certificates) \
        >/dev/null 2>&1 || return 1
    for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/root" || return 1; done
    for wheel in "$work"/root/usr/share/python-wheels/pip-*.whl; do
        if [ -e "$wheel" ]; then return 0; fi
    done
    return 1
}

# Debian's pip trusts the system's certificates; a machine without them gets the same ones here.
keep_certificates() {
    if [ -e /etc/ssl/certs/ca-certificates.crt ] || [ ! -d "$work/root/usr/share/ca-certificates" ]; then
        return 0
    fi
    find "$work/root/usr/share/ca-certificates" -name '*.crt' -exec cat {} + >"$venv/ca-certificates.crt"
}

make_venv() {
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then return 0; fi
    find_python
    version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    rm -rf "$venv"
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null && ! apt_install "$version-venv"; then
        fetch_pip_wheel || die "$version has no venv: install the package $version-venv (as root)," \
            "then run make again"
        "$python" -m venv --without-pip "$venv"
        "$venv/bin/python" "$wheel/pip" -q install --no-index --no-deps "$wheel"
        keep_certificates
        return 0
    fi
    "$python" -m venv "$venv"
}

pip_install() {
    if [ -e "$venv/ca-certificates.crt" ]; then
        PIP_CERT=${PIP_CERT:-$PWD/$venv/ca-certificates.crt}
        export PIP_CERT
    fi
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/python" -m pip install -qq --no-input "$@"
}

# What the sandbox stands on: a program, and the Debian package that holds it.
sandbox_packages() {
    if [ "$(uname -s)" != Linux ]; then return 0; fi
    missing=
    for pair in bwrap:bubblewrap newuidmap:uidmap setpriv:util-linux prlimit:util-linux; do
        have "${pair%%:*}" || missing="$missing ${pair##*:}"
    done
    if [ -z "$missing" ]; then return 0; fi
    # Word splitting is meant: each word is one package.
    # shellcheck disable=SC2086
    apt_install $missing ||
        say "the sandbox will need these system packages, which may not be installed here:$missing"
}

# What the tests run against: engines of their own for containers, and a compiler for WASM in C.
test_packages() {
    if [ "$(uname -s)" != Linux ]; then return 0; fi
    if ! { have dockerd && have podman && have runc; }; then
        apt_install docker.io podman runc ||
            say "the tests of containers will need Docker and Podman, which may not be installed here"
    fi
    if [ ! -d /usr/include/wasm32-wasi ] || ! have clang || ! have wasm-ld; then
        apt_install clang lld wasi-libc libclang-rt-dev-wasm32 ||
            apt_install clang lld wasi-libc libclang-rt-14-dev-wasm32 ||
            say "building C for WASM will need clang, lld and wasi-libc, which may not be installed here"
    fi
    # The tests start servers of their own.
    if ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
        apt_install postgresql ||
            say "the tests of PostgreSQL will need its server, which may not be installed here"
    fi
    have tmux || apt_install tmux ||
        say "the tests of the chat at a real terminal will need tmux, which may not be installed here"
    # The browser comes with fonts, without which no text has its width.
    have chromium || apt_install chromium fonts-dejavu-core ||
        say "the tests of the site will need Chromium, which may not be installed here"
    if ! { have zsh && have fish && have mandoc; }; then
        apt_install zsh fish mandoc ||
            say "the tests of completion and of the man page will need zsh, fish and mandoc"
    fi
    if [ ! -x /usr/sbin/sshd ] || ! have docker-registry; then
        apt_install openssh-server docker-registry ||
            say "the tests of sources will need openssh-server and docker-registry"
    fi
    have soffice || apt_install libreoffice-writer-nogui ||
        say "the tests of conversions will need LibreOffice, which may not be installed here"
    have npm || apt_install nodejs npm || say "building JavaScript will need Node.js with npm"
}

case $lock in all | dev) ;; *) die "usage: setup.sh [all|dev]" ;; esac
say "preparing $venv/ ($lock)"
make_venv
pip_install --require-hashes -r "requirements/$lock.txt"
pip_install --no-deps --no-build-isolation -e .
# So that the first start is as quick as every other, also where Python may not write bytecode.
"$venv/bin/python" -m compileall -q src
sandbox_packages
if [ "$lock" = dev ]; then test_packages; fi
touch "$venv/.all"
if [ "$lock" = dev ]; then touch "$venv/.dev"; fi
