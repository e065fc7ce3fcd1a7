"""The limits for reading a skill; the index depends on those of the SKILL.md.

They are separate from the parser, which a listing with a fresh index does not import.
"""

# Enough for nearly every frontmatter, so that a scan needs one read a file.
FIRST_READ_BYTES = 8 * 2**10
# Far beyond any honest frontmatter; parsing more would cost time and memory.
MAX_FRONTMATTER_BYTES = 64 * 2**10
# Characters of a description taken from the body: about what authors write themselves.
DERIVED_DESCRIPTION_CHARS = 300
# Deeper nesting than any field has, and far from the interpreter's recursion limit.
MAX_YAML_DEPTH = 64
# Aliases multiply: a few hundred make a file of gigabytes.
MAX_YAML_ALIASES = 64
# A larger file is not given to a model, and not read: `check` reports it.
MAX_RESOURCE_FILE_BYTES = 2_000_000
