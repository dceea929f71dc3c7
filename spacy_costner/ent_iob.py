"""The values of spaCy's ENT_IOB: what is known of the entity of a token."""

MISSING = 0
"""Nobody has annotated the token."""

INSIDE = 1
"""In an entity, but not its first token."""

OUTSIDE = 2

BEGIN = 3
"""The first token of an entity. If it has no label, no entity may have the token: it is blocked."""
