#!/bin/sh
# The product's main job on a project made for the occasion: find, list, show and check skills.
set -eu
cd "$(dirname "$0")/.."
repository=$PWD
folder=$(mktemp -d)
chmod 755 "$folder" # as root, commands run as another user, who must reach their workspace
trap 'rm -rf "$folder"' EXIT
project=$folder/project

# A home of its own, so that what is shown does not depend on whose machine this is.
export HOME="$folder" XDG_CONFIG_HOME="$folder/.config" XDG_CACHE_HOME="$folder/.cache"
export XDG_STATE_HOME="$folder/.state"
# What a command prints and what it says about it, in the order of a terminal, also in a pipe.
export PYTHONUNBUFFERED=1
PATH=$repository/.venv/bin:$PATH

mkdir -p "$project/.agents" "$project/.claude/skills/note-taker"
cp -R examples/skills "$project/.agents/skills"
cat >"$project/.claude/skills/note-taker/SKILL.md" <<'END'
---
name: Note Taker
description: Takes notes: use when the user says "note"
---

Write it into [the notes](references/notes.md).
END
cd "$project"

# show EXIT WHAT COMMAND...: says what is coming, runs it, and stops when the exit code is another.
show() {
    wanted=$1
    if [ -n "$2" ]; then printf '\n# %s\n' "$2"; fi
    shift 2
    printf '$ %s\n' "$*"
    code=0
    "$@" 2>&1 || code=$?
    if [ "$code" -ne "$wanted" ]; then
        printf 'demo: %s: exit code %s, not %s\n' "$*" "$code" "$wanted" >&2
        exit 1
    fi
}

echo "A project with six skills in .agents/skills, and one with faults in .claude/skills."
show 0 "Every skill that is found here, whichever client's folder it lies in:" skillbelt list
show 0 "One of them, with its files and what it costs in a prompt:" skillbelt show csv-report
show 0 "The faulty one is usable all the same; each fault has a line and a remedy:" \
    skillbelt check .agents/skills .claude/skills
show 1 "To the letter of the specification it is not; this is what could be mended:" \
    skillbelt check --strict --dry-run .claude/skills
show 0 "Where skills are looked for, what each folder gave, and what is wrong:" skillbelt doctor
show 0 "What a model is told of them, within a budget of 200 tokens:" \
    skillbelt prompt --format markdown --budget 200
show 0 "What it gets when it loads one:" skillbelt load csv-report
show 0 "Of a document it may ask for a section alone, or for some lines:" \
    skillbelt read csv-report SKILL.md --section Options
show 0 "" skillbelt read csv-report references/columns.md --start 1 --lines 3
show 4 "Nothing outside a skill's folder can be read:" skillbelt read csv-report ../json-diff/SKILL.md
printf 'name,score\nada,3\nbob,\n' >scores.csv
show 0 "Its script runs in a sandbox, on a file of the project; the result says what was enforced:" \
    skillbelt run csv-report --yes -v --input scores.csv -- python3 scripts/report.py inputs/scores.csv
show 1 "There is no network in there, and nobody's home:" \
    skillbelt run csv-report --yes -- cat /etc/shadow
show 0 "A rule of yours decides who may use a skill; the last one that matches counts:" \
    skillbelt permissions deny "json-*"
show 0 "" skillbelt permissions why json-diff
show 4 "" skillbelt load json-diff
show 0 "All of it is in the log:" skillbelt log
