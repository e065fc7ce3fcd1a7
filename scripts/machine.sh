#!/bin/sh
# Attacks and tests the native sandbox in a virtual machine of its own: `machine.sh amd64` or `arm64`.
#
# The machine is a Debian with systemd, so its control groups are of the second version, and it is
# emulated where this processor is another one. Everything is done by root, by an ordinary user, and
# by a user whose session may make groups. Needs root, a Debian with apt, `make setup` done with the
# developer's lock (`make check` does it), and 4 GB in FOLDER. Nothing is changed outside of FOLDER
# but that missing Debian packages are installed.
#
#   SUITE=trixie     the Debian inside; an older one has an older kernel
#   FOLDER=/tmp/...  where the machine is kept, to be quicker the next time
#   MIRROR=          of Debian; by default the one that apt has here
#   TESTS="..."      files of tests; WHO="root user delegated" by whom; ATTACKS=0 leaves those out
set -eu
cd "$(dirname "$0")/.."

say() { printf 'machine: %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }
have() { command -v "$1" >/dev/null 2>&1; }

arch=${1:-}
case $arch in
    amd64) processor=x86_64 emulator=qemu-system-x86 hardware=q35 console=ttyS0 ;;
    arm64) processor=aarch64 emulator=qemu-system-arm hardware=virt console=ttyAMA0 ;;
    *) die "usage: machine.sh amd64|arm64" ;;
esac
suite=${SUITE:-trixie}
folder=${FOLDER:-/tmp/skillbelt-machine}/$suite-$arch
root=$folder/root
who=${WHO:-root user delegated}
names="attacks cgroups conformance entry identity landlock launch limits linux none probes process"
names="$names seccomp sights spawn supervised syscalls usage watch"
tests=${TESTS:-$(for name in $names; do printf 'tests/sandbox/test_%s.py ' "$name"; done)}

# What is inside: what the sandbox stands on, what the tests need, and a system that starts.
inside="systemd systemd-sysv dbus dbus-user-session libpam-systemd udev kmod iproute2 procps util-linux
    initramfs-tools linux-image-cloud-$arch python3 bubblewrap uidmap git make"
# The product's own packages and those of its tests, with all that they need in turn.
packages="anyio execnet h11 httpcore2 httpx2 hypothesis idna iniconfig markdown-it-py mdurl packaging
    platformdirs pluggy pygments pytest pytest-timeout pytest-xdist pyyaml rich
    sortedcontainers truststore typing-extensions"

[ "$(id -u)" = 0 ] || die "only root can make a system of files; run it as root"
[ -x .venv/bin/python ] || die "there is no .venv: run 'make check' first"

install_missing() {
    missing=
    have debootstrap || missing="$missing debootstrap"
    have mke2fs || missing="$missing e2fsprogs"
    have "qemu-system-$processor" || missing="$missing $emulator"
    if [ "$(uname -m)" != "$processor" ] && [ ! -e "/proc/sys/fs/binfmt_misc/qemu-$processor" ]; then
        missing="$missing qemu-user-static binfmt-support"
    fi
    if [ -z "$missing" ]; then return 0; fi
    say "installing$missing"
    # Word splitting is meant: each word is one package.
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing \
        >"$folder/install.log" 2>&1 || die "these packages can not be installed:$missing"
}

mirror() {
    if [ -n "${MIRROR:-}" ]; then echo "$MIRROR"; return 0; fi
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1
}

make_root() {
    if [ -e "$root/.made" ]; then return 0; fi
    from=$(mirror)
    [ -n "$from" ] || die "apt has no mirror of Debian here: set MIRROR"
    say "making a Debian ($suite, $arch); it takes some minutes, more for another processor"
    rm -rf "$root"
    # shellcheck disable=SC2086
    debootstrap --arch="$arch" --variant=minbase --include="$(echo $inside | tr ' ' ,)" "$suite" \
        "$root" "$from" >"$folder/debootstrap.log" 2>&1 ||
        die "debootstrap failed; see $folder/debootstrap.log"
    chroot "$root" useradd -m -u 1000 -s /bin/sh worker
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    mkdir -p "$root/opt/work" "$root/etc/systemd/system/multi-user.target.wants"
    echo 'LABEL=work /opt/work ext4 defaults 0 0' >"$root/etc/fstab"
    cp scripts/machine/machine.service "$root/etc/systemd/system/"
    ln -s ../machine.service "$root/etc/systemd/system/multi-user.target.wants/"
    mke2fs -q -t ext4 -d "$root" -L root "$folder/root.img" 2500M
    touch "$root/.made"
}

# The lock is for all processors; what is not for this one is not taken.
make_packages() {
    version=$(cd "$root/usr/bin" && echo python3.[0-9]* | sed 's/^python\(3\.[0-9]*\).*/\1/')
    if cmp -s requirements/dev.txt "$folder/lock.txt"; then return 0; fi
    # shellcheck disable=SC2086
    awk -v wanted=" $(echo $packages) " '
        /^[a-z0-9]/ { split($1, part, "=="); keep = index(wanted, " " part[1] " ") }
        keep && !/^ *#/' requirements/dev.txt >"$folder/wanted.txt"
    rm -rf "$folder/site"
    .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input --require-hashes \
        --target "$folder/site" --only-binary=:all: --implementation cp --python-version "$version" \
        --platform "manylinux_2_28_$processor" --platform "manylinux_2_17_$processor" \
        --platform "manylinux2014_$processor" -r "$folder/wanted.txt"
    cp requirements/dev.txt "$folder/lock.txt"
}

make_work() {
    rm -rf "$folder/work"
    mkdir -p "$folder/work/skillbelt"
    git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - |
        tar -x -C "$folder/work/skillbelt"
    cp -a "$folder/site" "$folder/work/site"
    cp scripts/machine/inside.sh "$folder/work/"
    {
        echo "who='$who'"
        echo "tests='$tests'"
        echo "attacks=${ATTACKS:-1}"
    } >"$folder/work/asked"
    rm -f "$folder/work.img"
    mke2fs -q -t ext4 -d "$folder/work" -L work "$folder/work.img" 600M
}

# A processor that says nothing of it can not carry a machine well, whatever /dev/kvm says.
acceleration() {
    if [ "$(uname -m)" = "$processor" ] && [ -w /dev/kvm ] &&
        { [ "$processor" = aarch64 ] || grep -qwE 'vmx|svm' /proc/cpuinfo; }; then
        echo "-accel kvm -cpu host"
    elif [ "$processor" = aarch64 ]; then
        echo "-accel tcg,thread=multi -cpu cortex-a57"
    else
        echo "-accel tcg,thread=multi -cpu Nehalem,-cx16"
    fi
}

boot() {
    said=$folder/said.log
    : >"$said"
    say "starting it; what it says is in $said"
    # shellcheck disable=SC2046
    "qemu-system-$processor" -machine "$hardware" $(acceleration) -smp 2 -m 3072 -nographic \
        -no-reboot -nic none -kernel "$(echo "$root"/boot/vmlinuz-*)" \
        -initrd "$(echo "$root"/boot/initrd.img-*)" \
        -append "root=/dev/vda rw quiet console=$console systemd.show_status=0 panic=-1" \
        -drive "file=$folder/root.img,format=raw,if=virtio,snapshot=on" \
        -drive "file=$folder/work.img,format=raw,if=virtio,cache=unsafe" \
        -device virtio-rng-pci -device virtio-serial -chardev "file,id=said,path=$said" \
        -device virtserialport,chardev=said,name=said </dev/null >"$folder/console.log" 2>&1 &
    machine=$!
    trap 'kill $machine 2>/dev/null || :' EXIT INT TERM
    tail -n +1 -f --pid="$machine" "$said"
    wait "$machine" || die "the machine broke off; see $folder/console.log"
    # Its last line is the exit code.
    code=$(sed -n 's/^machine: ended with \([0-9]*\)$/\1/p' "$said" | tail -n 1)
    return "${code:-2}"
}

mkdir -p "$folder"
install_missing
make_root
make_packages
make_work
boot
