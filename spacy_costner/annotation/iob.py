"""The values of spaCy's attribute ENT_IOB, the IOB code of a token's entity annotation."""

MISSING = 0
"""The token is not annotated."""

INSIDE = 1
"""The token is inside an entity, but not its first token."""

OUTSIDE = 2
"""The token is outside of entities."""

BEGIN = 3
"""The token is the first token of an entity. Without a label, it is a blocked token, which can't be
part of an entity."""
