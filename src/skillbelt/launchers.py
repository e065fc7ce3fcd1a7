"""Programs that start another command, such as `env` and `timeout`, and shells."""

from __future__ import annotations

from collections.abc import Mapping

from skillbelt.records import NamedTuple


class Prefix(NamedTuple):
    """The words between a launcher and its command: options that take a word, and plain words."""

    valued: str = ""
    flags: str = ""
    operands: int = 0


# An option that is not listed makes the line ambiguous: it may take the next word, or do more.
PREFIXES: Mapping[str, Prefix] = {
    "env": Prefix("-u -C --unset --chdir", "-i - -0 -v --ignore-environment --null --debug"),
    "nice": Prefix("-n --adjustment"),
    "timeout": Prefix(
        "-s -k --signal --kill-after", "-v --verbose --foreground --preserve-status", 1
    ),
    "nohup": Prefix(),
    "setsid": Prefix("", "-c -f -w --ctty --fork --wait"),
    "stdbuf": Prefix("-i -o -e --input --output --error"),
    "ionice": Prefix("-c -n --class --classdata", "-t --ignore"),
    "chrt": Prefix("", "-b -f -i -o -r --batch --fifo --idle --other --rr", 1),
    "taskset": Prefix("", "-c -a --cpu-list --all-tasks", 1),
    "choom": Prefix("-n --adjust"),
    "prlimit": Prefix(),
    "setpriv": Prefix("", "--no-new-privs --nnp --clear-groups --keep-groups --init-groups"),
    "flock": Prefix("-w -E --timeout", "-s -x -e -n -o -F --shared --exclusive --nonblock", 1),
    "chroot": Prefix("", "", 1),
    "sudo": Prefix("-u -g -h -p -C -D -R -T -U --user --group", "-n -E -H -k -S -b -A"),
    "doas": Prefix("-u -C", "-n"),
    "time": Prefix("-f -o --format --output", "-p -a -v --portability --append --verbose"),
    "busybox": Prefix(),
    "toybox": Prefix(),
    "caffeinate": Prefix("-t", "-d -i -m -s -u"),
    "unbuffer": Prefix("", "-p"),
    "eatmydata": Prefix(),
    "fakeroot": Prefix(),
    "catchsegv": Prefix(),
    "setarch": Prefix("", "-R -v", 1),
    "linux32": Prefix(),
    "linux64": Prefix(),
    "ld.so": Prefix(),
    "xargs": Prefix(
        "-n -P -L -I -d -E -s -a --max-args --max-procs --delimiter --arg-file",
        "-0 -r -t -x --null --no-run-if-empty --verbose",
    ),
}
_SHELL_NAMES = "sh bash dash zsh ksh mksh ash rbash fish csh tcsh yash posh"
SHELLS = frozenset(_SHELL_NAMES.split())
