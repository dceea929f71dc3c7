"""Write the guarantee of a pipeline in words: `guarantee` prints it, and `page` shows it."""

from ..pipeline.promises import Promise


def part_fields(promise: Promise) -> list[str]:
    """What the parts of a guarantee, which have their own thresholds, are named by: ["group"],
    ["label"], or ["group", "label"] if each pair of both is a part. Empty if all entities have the
    same threshold."""
    names = []
    if promise.by_group:
        names.append("group")
    if promise.per_label:
        names.append("label")
    return names


def promise_text(promise: Promise) -> str:
    """Write what is guaranteed, such as "at most 0.05 of the entities of a doc are missed, on
    average over calibrations (found: exact)". "found" is the rule by which an entity counts as
    found. The docs for which the guarantee holds are not in the text."""
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
