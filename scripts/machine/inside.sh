# Run by root in the machine that machine.sh makes. Its last line says how it ended.
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PYTHONPATH=/opt/work/skillbelt/src:/opt/work/site
cd /opt/work/skillbelt || exit
. /opt/work/asked
code=0

say() { printf '\n== %s\n' "$*"; }

# Runs the words as one of: root, in a service of the system; a user who may make no groups; the
# same user in a service of their own manager, which may.
as() {
    by=$1
    shift
    case $by in
        root) "$@" ;;
        user) runuser -u worker -- env HOME=/home/worker "$@" ;;
        delegated)
            runuser -u worker -- env HOME=/home/worker XDG_RUNTIME_DIR=/run/user/1000 \
                systemd-run --user --quiet --pipe --wait --collect --working-directory="$PWD" \
                -E "PYTHONPATH=$PYTHONPATH" "$@"
            ;;
    esac
}

summary='
import collections, json, sys
rows = json.load(sys.stdin)["matrix"]
print(collections.Counter((row["sandbox"], row["outcome"]) for row in rows))
for row in rows:
    if row["outcome"] not in ("stopped", "not claimed"):
        print(row)
'
where='
from skillbelt.sandbox.linux.cgroups import hierarchy
from skillbelt.sandbox.registry import sandboxes
from skillbelt.settings import load_settings
print(open("/proc/self/cgroup").read().strip(), hierarchy())
for one in sandboxes(load_settings()):
    print(one.name, one.unavailable() or "works")
'

uname -srm
python3 --version
bwrap --version
loginctl enable-linger worker
systemctl start user@1000.service
for by in $who; do
    say "$by"
    as "$by" python3 -c "$where" || code=1
    if [ "$attacks" != 0 ]; then
        as "$by" python3 -m skillbelt doctor --sandbox --json >"/tmp/attacks-$by.json" || code=1
        python3 -c "$summary" <"/tmp/attacks-$by.json" || code=1
    fi
    # Another processor is some thirty times slower. Each word of the tests is a file.
    # shellcheck disable=SC2086
    as "$by" python3 -m pytest -q -n0 -p no:cacheprovider --timeout 1800 \
        --basetemp="/tmp/tests-$by" $tests || code=1
done
echo "machine: ended with $code"
