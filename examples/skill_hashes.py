"""Print one hash for each skill: it changes when any file of the skill does."""

from skillbelt import Catalog, build_manifest

for skill in Catalog().all():
    manifest = build_manifest(skill.dir)
    print(manifest.hash, skill.name, f"{len(manifest.files)} files")
