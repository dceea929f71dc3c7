"""Base class that saves and loads a component. It defines the contents of the files, and what is
checked and restored when they are loaded. Reading and writing the files is implemented in
`serialization`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from spacy.vocab import Vocab
from thinc.api import Model

from ..decoding import Decoding
from ..tags import Tags
from ..training.objective import Objective
from .calibrated_pipe import CalibratedPipe
from .calibration_state import CalibrationState, ConfigSettings, digest_of_tables
from .confidence import register
from .serialization import (
    Cfg,
    check_cfg,
    check_digest,
    check_format,
    follow_config,
    load_model,
    mark_version,
    naming_version,
    pack_parts,
    read_files,
    reading_part,
    save_model,
    sign,
    unpack_parts,
    write_files,
)

PipeT = TypeVar("PipeT", bound="SavedPipe")


class SavedPipe(CalibratedPipe):
    """A component that is saved to two files: "cfg" contains its settings and calibration results,
    and "model" contains its weights."""

    vocab: Vocab
    model: Model
    name: str
    objective: Objective
    _decoding: Decoding
    _configured: Cfg  # the settings of the config: see `follow_config`
    # The decoding and the labels that a digest was made from, and the digest.
    _digest_of_decoding: tuple[tuple[Decoding, tuple[str, ...]], str | None] | None = None

    @property
    def chain_tags(self) -> Tags:
        """The tags of the chain, which may include several O tags."""
        raise NotImplementedError

    @property
    def tags(self) -> Tags:
        """The tags used for annotation, costs and probabilities, with a single O."""
        raise NotImplementedError

    @property
    def _decoding_tables(self) -> Any:
        """The tables of the decoding for the labels of the component, in JSON format. None if it
        has no tables, or the component has no labels yet."""
        if not self.labels or self._decoding.tables is None:
            return None
        return self._decoding.tables(self.tags)

    @property
    def decoding_digest(self) -> str | None:
        """The digest of the tables of the decoding: see `ConfigSettings`."""
        # This is called before each prediction, and tables may be large, so keep the digest until
        # the decoding or the labels change.
        made_from = (self._decoding, self.labels)
        if self._digest_of_decoding is None or self._digest_of_decoding[0] != made_from:
            self._digest_of_decoding = (made_from, digest_of_tables(self._decoding_tables))
        return self._digest_of_decoding[1]

    def check_settings(self) -> None:
        """Check that the settings in `cfg`, which may have been edited, are complete and match the
        labels. Raise a ValueError otherwise."""
        raise NotImplementedError

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the component to a directory.

        path (str | Path): The path of the directory.
        exclude (Iterable[str]): Parts to exclude: "cfg", "vocab" or "model".
        RAISES (ValueError): If a label or a setting can't be encoded as UTF-8.
        """
        cfg, model = self._make_contents(exclude)
        write_files(path, cfg, model, self.vocab, exclude)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Serialize the component to a bytestring.

        exclude (Iterable[str]): Parts to exclude: "cfg", "vocab" or "model".
        RETURNS (bytes): The serialized component.
        RAISES (ValueError): If a label or a setting can't be encoded as UTF-8.
        """
        cfg, model = self._make_contents(exclude)
        return pack_parts(cfg, model, self.vocab, exclude)

    def _make_contents(self, exclude: Iterable[str]) -> tuple[Cfg, bytes]:
        """Create the contents of the files "cfg" and "model". If "model" is excluded, its contents
        are empty."""
        cfg = mark_version({**self.cfg, **self.calibration.to_dict()})
        # When the component is loaded, `follow_config` compares these settings with the config.
        cfg["configured"] = self._configured
        # Tables that the decoding has created from files, such as a cost table, are saved because
        # these files may be missing when the component is loaded.
        cfg["decoding_tables"] = self._decoding_tables
        if "model" in exclude:
            return cfg, b""
        model = save_model(self.model)
        return sign(cfg, model), model

    def from_disk(self: PipeT, path: str | Path, *, exclude: Iterable[str] = ()) -> PipeT:
        """Load the component from a directory. Modifies the component in place.

        path (str | Path): The path of the directory that was written by `to_disk`.
        exclude (Iterable[str]): Parts to exclude: "cfg", "vocab" or "model".
        RETURNS (PipeT): The modified component.
        RAISES (ValueError): If a file is missing or damaged, belongs to a different kind of
            component, or was not saved together with the other file.
        """
        saved = read_files(path, self.name, self.vocab, exclude)
        return self._load(saved, folder=f"{path}/")

    def from_bytes(self: PipeT, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> PipeT:
        """Load the component from a bytestring. Modifies the component in place.

        bytes_data (bytes): The serialized component, as returned by `to_bytes`.
        exclude (Iterable[str]): Parts to exclude: "cfg", "vocab" or "model".
        RETURNS (PipeT): The modified component.
        RAISES (ValueError): If a part is missing or damaged, belongs to a different kind of
            component, or was not saved together with the other part.
        """
        saved = unpack_parts(bytes_data, self.name, self.vocab, exclude)
        return self._load(saved, folder="")

    def _load(self: PipeT, saved: dict[str, Any], folder: str) -> PipeT:
        """Load the contents of the files "cfg" and "model", unless they are excluded. `folder` is
        the directory with a trailing slash, for error messages, or empty when loading from bytes.
        If the component was saved by a different version of this package, error messages mention
        both versions."""
        with naming_version(saved.get("cfg")):
            self._load_parts(saved, folder)
        return self

    def _load_parts(self, saved: dict[str, Any], folder: str) -> None:
        """Load the contents of the files (see `_load`). Raise a ValueError if they are inconsistent
        with each other or with the config."""
        if "cfg" in saved and "model" in saved:
            check_digest(saved["cfg"], saved["model"], where=f"{self.name}: {folder}model")
        # `reading_part` adds the names of the part and its file to error messages.
        with reading_part("cfg", self.name, folder):
            if "cfg" in saved:
                check_format(saved["cfg"])
                current = {**self.cfg, **self.calibration.to_dict()}
                self._load_cfg(check_cfg(saved["cfg"], current))
        with reading_part("model", self.name, folder):
            if "model" in saved:
                # If "cfg" is excluded and there are no labels yet, the number of tags is unknown.
                has_labels = bool(self.labels) or "cfg" in saved
                expected_n_tags = len(self.chain_tags) if has_labels else None
                load_model(self.model, saved["model"], expected_n_tags)
            n_tags = self.model.maybe_get_dim("nO")
            if self.labels and n_tags not in (None, len(self.chain_tags)):
                raise ValueError(f"expected weights for {len(self.chain_tags)} tags, got {n_tags}")

    def _load_cfg(self, saved: Cfg) -> None:
        """Load the settings and the calibration results from a saved cfg that has already been
        checked by `check_cfg`. Restore the cost tables, the strings of the labels and the extension
        attribute. Raise a ValueError if a setting is invalid or doesn't match the labels."""
        # Versions before 0.5.0 saved the tables of the decoding, but no sentence boundaries.
        assumed = ConfigSettings(
            sentence_boundaries=self.annotation.sentence_boundaries,
            decoding_tables=digest_of_tables(saved["decoding_tables"]),
        )
        self.calibration = CalibrationState.from_dict(saved, assumed)
        self.cfg.update(follow_config(self.cfg, saved, self._configured))
        self.objective.labels_are_given = bool(self.cfg["labels_are_given"])
        # Use the saved tables, because the file with a cost or a label tree may be missing.
        self.objective.restore(self.cfg["cost_tables"], self.tags)
        if self._decoding.restore is not None and saved["decoding_tables"]:
            self._decoding.restore(saved["decoding_tables"])
        # The saved `cfg` may have been edited by hand, so its settings are checked again.
        self.check_settings()
        for label in self.labels:
            self.vocab.strings.add(label)
        if self.confidence is not None:
            register(self.confidence)
        self.check_guarantee()
