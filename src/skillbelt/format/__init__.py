"""SKILL.md: YAML, frontmatter, sections, links, and a skill as a value."""
