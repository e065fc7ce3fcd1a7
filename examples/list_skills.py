"""List the skills of the current project, and what is wrong with them."""

from skillbelt import Catalog

catalog = Catalog()
for skill in catalog.all():
    print(f"{skill.name} ({skill.scope}): {skill.description}")
for problem in catalog.problems:
    print(problem)
