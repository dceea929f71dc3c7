"""The values of spaCy's attribute ENT_IOB, which says of each token whether it is in an entity."""

MISSING = 0
"""Nobody has annotated the token."""

INSIDE = 1
"""The token is in an entity, but isn't the first of it."""

OUTSIDE = 2
"""The token is in no entity."""

BEGIN = 3
"""The token is the first of an entity. If it has no label, it is a blocked token: no entity may
include it."""
