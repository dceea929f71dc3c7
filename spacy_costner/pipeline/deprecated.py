"""Old names, accepted for one release: see docs/migration.md."""

from typing import Any, Iterable, List

from spacy.tokens import Doc

from ..decoding import Posterior
from ..validation import warn_of_old_name
from .annotations import Hypothesis


class OldMethods:
    """Methods of the component by their old names."""

    def beliefs(self: Any, docs: Iterable[Doc], *, preset: bool = False) -> Posterior:
        warn_of_old_name("beliefs", "posterior")
        return self.posterior(docs, preset=preset)

    def readings(self: Any, docs: Iterable[Doc], k: int = 5) -> List[List[Hypothesis]]:
        warn_of_old_name("readings", "k_best")
        return self.k_best(docs, k)
