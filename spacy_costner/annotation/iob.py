"""The values of spaCy's attribute ENT_IOB, which says whether a token is in an entity."""

MISSING = 0
"""The token is not annotated."""

INSIDE = 1
"""The token is in an entity, but isn't its first token."""

OUTSIDE = 2
"""The token is outside of entities."""

BEGIN = 3
"""The token is the first of an entity. If it has no label, it is a blocked token: no entity may
include it."""
