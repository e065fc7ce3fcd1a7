#!/bin/sh
# The product's main job on a project made for the occasion: find, list, show and check skills.
set -eu
cd "$(dirname "$0")/.."
repository=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
project=$folder/project

# A home of its own, so that what is shown does not depend on whose machine this is.
export HOME="$folder" XDG_CONFIG_HOME="$folder/.config" XDG_CACHE_HOME="$folder/.cache"
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

# show WHAT COMMAND...: says what is coming, then runs it; exit code 1 means "problems found".
show() {
    printf '\n# %s\n$ %s\n' "$1" "$(shift; echo "$*")"
    shift
    code=0
    "$@" 2>&1 || code=$?
    if [ "$code" -gt 1 ]; then exit "$code"; fi
}

echo "A project with four skills in .agents/skills, and one with faults in .claude/skills."
show "Every skill that is found here, whichever client's folder it lies in:" skillbelt list
show "One of them, with its files and what it costs in a prompt:" skillbelt show csv-report
show "The faulty one is usable all the same, and each fault has a line and a remedy:" \
    skillbelt check .agents/skills .claude/skills
show "Where skills are looked for, what each folder gave, and what is wrong:" skillbelt doctor
