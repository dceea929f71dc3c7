"""Describe the guarantee of a pipeline in words, for the commands `guarantee` and `page`."""

from ..pipeline.promises import Promise


def part_fields(promise: Promise) -> list[str]:
    """Return the fields that identify the parts of a guarantee: ["group"], ["label"], or ["group",
    "label"] if there is a part for each combination. Each part has a separate threshold. The list
    is empty if there is only one threshold."""
    names = []
    if promise.by_group:
        names.append("group")
    if promise.per_label:
        names.append("label")
    return names


def promise_text(promise: Promise) -> str:
    """Describe a guarantee in words, as in "at most 0.05 of the entities of a doc are missed, on
    average over calibrations (found: exact)". "found" is the criterion for counting an entity as
    found. The text doesn't mention the docs for which the guarantee holds."""
    if not promise.limits_misses:
        mistakes = "the predicted set of a doc is wrong"
    elif promise.by == "doc":
        mistakes = "the entities of a doc are missed"
    else:
        mistakes = "the docs with entities have one that is missed"
    if promise.confidence is not None:
        certainty = f"on average over docs, with confidence {promise.confidence:g}"
    elif promise.drawings is not None:
        certainty = "on average over drawings"
    else:
        certainty = "on average over calibrations"
    text = f"at most {promise.limit:.3g} of {mistakes}, {certainty}"
    part_names = part_fields(promise)
    if part_names:
        text += f", for each {' and '.join(part_names)} with a threshold"
    return f"{text} (found: {promise.found})"
