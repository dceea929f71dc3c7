"""The guarantee of a component: what is promised of its sets, and as long as what."""

import warnings
from typing import Any, Dict, Optional

import srsly

from .serialization import Cfg, SavedPipe

KEY = "guarantee"
"""The key of the promise in `cfg`, and of the promises of all components in `nlp.meta`."""

HOLDS_FOR = ("labels", "scheme", "outside", "decoding", "temperature")
"""The keys of `cfg` that a promise depends on. It depends on the weights too."""


class GuaranteedPipe(SavedPipe):
    """A component whose set of spans may come with a promise, such as a miss rate.

    The promise is in `cfg["guarantee"]`: see `commands.guarantee`. It is also in
    `nlp.meta["guarantee"]`, by the name of the component. It is dropped, with a warning, when what
    it depends on changes.
    """

    meta: Dict[str, Any]

    @property
    def guarantee(self) -> Optional[Cfg]:
        """What is promised of `doc.spans[spans_key + "_guaranteed"]`: the settings of
        `commands.guarantee.guarantee`, the thresholds and the calibration docs. None: nothing.
        """
        promise = self.cfg.get(KEY)
        if promise is None:
            return None
        before = promise["holds_for"]
        changed = [name for name in HOLDS_FOR if before.get(name) != _as_json(self.cfg[name])]
        if self.cfg["confidence"] is None:
            changed.append("confidence")
        if not changed:
            return promise
        self.drop_guarantee(f"another setting of {changed[0]}")
        return None

    def set_guarantee(self, promise: Cfg) -> None:
        """Promise something of the component's sets, with its current settings.

        promise (Cfg): The promise, as JSON. "threshold" and "labels" are the least probability of
            spans in the set, in all and by label.
        """
        holds_for = {name: _as_json(self.cfg[name]) for name in HOLDS_FOR}
        self.cfg[KEY] = {**promise, "holds_for": holds_for}
        self.meta.setdefault(KEY, {})[self.name] = promise

    def drop_guarantee(self, reason: str) -> None:
        """Drop the promise, if there is one, with a warning.

        reason (str): What has changed.
        """
        if self.cfg.get(KEY) is None:
            return
        self.cfg[KEY] = None
        self.meta.get(KEY, {}).pop(self.name, None)
        warnings.warn(
            f"{self.name}: the guarantee is dropped, as it does not hold after {reason}. Run "
            "`python -m spacy costner guarantee` again",
            stacklevel=3,
        )


def _as_json(settings: Any) -> Any:
    return srsly.json_loads(srsly.json_dumps(settings))
