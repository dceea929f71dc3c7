"""The settings of prediction, which can be changed without training: decoding and confidence.

Their home is `cfg`. The config fills it in, `set_decoding`, `set_confidence` or the user change it,
and it is saved with the model.
"""

from copy import deepcopy
from dataclasses import asdict
from typing import Any, Dict, Optional, Tuple

from thinc.types import Floats1d

from ..costs.tables import hamming_cost
from ..decoding import DecodedSpans, Decoding, MinCost, Posterior
from ..tags import Tags
from ..training.objective import Objective
from ..types import Cost
from .annotations import Confidence, checked, register
from .guarantee import GuaranteedPipe
from .serialization import SAVED_ONLY, Cfg, check_names


class PredictionSettings(GuaranteedPipe):
    """A component with settings of prediction."""

    objective: Objective
    _configured: Dict[str, Any]
    _decoding: Decoding
    _tags: Tags

    @property
    def labels(self) -> Tuple[str, ...]:
        """The labels of the component."""
        return tuple(self.cfg["labels"])

    @property
    def label_data(self) -> Tuple[str, ...]:
        """The labels in the form that `initialize` takes."""
        return self.labels

    @property
    def tags(self) -> Tags:
        """The tags of annotation, costs and probabilities, with a single O."""
        return self.chain_tags.collapsed

    @property
    def chain_tags(self) -> Tags:
        """The tags of the chain."""
        tags, scheme, outside = self._tags, self.cfg["scheme"], self.cfg["outside"]
        if (tags.labels, tags.scheme.name, tags.outside) != (self.labels, scheme, outside):
            self._tags = Tags(self.labels, scheme, outside)
        return self._tags

    def decode(self, posterior: Posterior) -> DecodedSpans:
        """Decode entities, with the current settings of decoding.

        posterior (Posterior): The probabilities.
        RETURNS (DecodedSpans): The entities.
        """
        return self._decoding.decode(posterior, self.cfg["decoding"])

    @property
    def cost(self) -> Optional[Cost]:
        """What mistakes cost, if decoding is by cost."""
        decode = self._decoding.decode
        return decode.cost if isinstance(decode, MinCost) else None

    def expected_costs(self, posterior: Posterior) -> Floats1d:
        """The expected cost of the tag that is predicted for each token by decoding by cost. With
        another decoding, a wrong tag costs 1.

        posterior (Posterior): The probabilities.
        RETURNS (Floats1d): The costs. Shape: (N,)
        """
        decode = self._decoding.decode
        min_cost = decode if isinstance(decode, MinCost) else MinCost(hamming_cost, None)
        return min_cost.expected_costs(posterior)

    def set_decoding(self, decoding: Decoding) -> None:
        """Change the decoding, without training again. Its settings are in `cfg["decoding"]`.

        decoding (Decoding): The decoding.
        RAISES (ValueError): If its settings don't fit the labels of a trained model.
        """
        if self.labels and self.model.has_dim("nO"):
            decoding.check(self.tags, decoding.settings)
        self.drop_guarantee("another decoding")
        self._decoding = decoding
        self.cfg["decoding"] = deepcopy(decoding.settings)
        self._configured["decoding"] = deepcopy(decoding.settings)

    def check_decoding(self, tags: Tags) -> None:
        """Check that the settings of decoding fit the labels.

        tags (Tags): The tag set.
        RAISES (ValueError): If a setting is for another label, or a label has no cost or is not
            in the tree.
        """
        self._decoding.check(tags, self.cfg["decoding"])

    def set_confidence(self, confidence: Optional[Confidence]) -> None:
        """Change where the probabilities of entities are written. The settings are in
        `cfg["confidence"]`.

        confidence (Optional[Confidence]): The settings. None: they are not written.
        RAISES (ValueError): If another extension attribute of spans has that name.
        """
        if confidence is not None:
            register(confidence)
        self.cfg["confidence"] = confidence and asdict(confidence)
        self._configured["confidence"] = confidence and asdict(confidence)

    @property
    def confidence(self) -> Optional[Confidence]:
        """Where the probabilities of entities are written."""
        settings = self.cfg["confidence"]
        if settings and not isinstance(settings, dict):
            raise ValueError(f"confidence: expected a block of settings, got {settings!r}")
        return settings and checked(Confidence(**settings))

    def _n_tags(self) -> Optional[int]:
        return len(self.chain_tags) if self.labels else None

    def _saved_extras(self) -> Cfg:
        tables = self._decoding.tables if self.labels else None
        return {
            "configured": self._configured,
            "decoding_tables": tables and tables(self.tags),
        }

    def _load_cfg(self, saved: Cfg) -> None:
        tables = load_settings(self.cfg, self._configured, saved)
        self.objective.restore(self.cfg["cost_tables"], self.tags)
        if self._decoding.restore is not None and tables:
            self._decoding.restore(tables)
        check_names(self.cfg["decoding"], self._configured["decoding"], "decoding")
        if self.labels:
            self.check_decoding(self.tags)
        for label in self.labels:
            self.vocab.strings.add(label)
        if self.confidence is not None:
            register(self.confidence)
        _ = self.guarantee  # dropped if the config, or an edited cfg, has changed what it holds for


def load_settings(cfg: Cfg, configured: Cfg, saved: Cfg) -> Optional[Any]:
    """Load saved settings. A setting that was changed on the component keeps its saved value,
    unless the config now differs from the config at the time of saving.

    cfg (Cfg): The cfg of the component. It is updated.
    configured (Cfg): The settings as the config has them.
    saved (Cfg): The cfg that was saved.
    RETURNS (Optional[Any]): The saved tables of the decoding.
    """
    then, tables = saved.get("configured", configured), saved.get("decoding_tables")
    cfg.update({name: saved[name] for name in saved if name not in SAVED_ONLY})
    for name, settings in configured.items():
        # Models of 0.1 don't have all of today's settings.
        before = then.get(name)
        if isinstance(before, dict) and isinstance(settings, dict):
            before = {**dict.fromkeys(settings), **before}
        if before != settings:
            cfg[name] = deepcopy(settings)
    # Models of 0.1 have sentence_boundaries, and the tables among the settings of decoding.
    cfg.pop("sentence_boundaries", None)
    if tables is None and "table" in saved.get("decoding", ()):
        tables, cfg["decoding"] = saved["decoding"], deepcopy(configured["decoding"])
    return tables
