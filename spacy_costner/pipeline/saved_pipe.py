"""Save a component and load it: what is in its files, and what is checked and restored at load.

`serialization` reads and writes the files.
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
from .calibration_state import CalibrationState
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
    """A component that is saved in two files: "cfg" has its settings, with the results of
    calibration docs, and "model" its weights."""

    vocab: Vocab
    model: Model
    name: str
    objective: Objective
    _decoding: Decoding
    _configured: Cfg  # settings of the config: see `follow_config`

    @property
    def chain_tags(self) -> Tags:
        """The tags of the chain, several of which may be O."""
        raise NotImplementedError

    @property
    def tags(self) -> Tags:
        """The tags of annotation, costs and probabilities, with a single O."""
        raise NotImplementedError

    def check_settings(self) -> None:
        """Check the settings in `cfg`, which may have been edited: that they are complete, and fit
        the labels. Otherwise it is a ValueError."""
        raise NotImplementedError

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the component to a directory.

        path (str | Path): The path of the directory.
        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        RAISES (ValueError): If a label or a setting has text that can't be UTF-8.
        """
        cfg, model = self._make_contents(exclude)
        write_files(path, cfg, model, self.vocab, exclude)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Save the component to bytes.

        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        RETURNS (bytes): The saved component, for `from_bytes`.
        RAISES (ValueError): If a label or a setting has text that can't be UTF-8.
        """
        cfg, model = self._make_contents(exclude)
        return pack_parts(cfg, model, self.vocab, exclude)

    def _make_contents(self, exclude: Iterable[str]) -> tuple[Cfg, bytes]:
        """Make the contents of the files "cfg" and "model". If "model" is excluded, it is
        empty."""
        cfg = mark_version({**self.cfg, **self.calibration.to_dict()})
        # `follow_config` compares these settings at load with the settings of the config.
        cfg["configured"] = self._configured
        # The decoding may have made tables from files, such as a table of costs. At load, these
        # files may be missing.
        cfg["decoding_tables"] = None
        if self.labels and self._decoding.tables is not None:
            cfg["decoding_tables"] = self._decoding.tables(self.tags)
        if "model" in exclude:
            return cfg, b""
        model = save_model(self.model)
        return sign(cfg, model), model

    def from_disk(self: PipeT, path: str | Path, *, exclude: Iterable[str] = ()) -> PipeT:
        """Load the component from a directory.

        path (str | Path): The directory that `to_disk` wrote.
        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        RETURNS (PipeT): The component itself.
        RAISES (ValueError): If a file is missing or damaged, is from another kind of component, or
            is not from the same save as the other file.
        """
        saved = read_files(path, self.name, self.vocab, exclude)
        return self._load(saved, folder=f"{path}/")

    def from_bytes(self: PipeT, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> PipeT:
        """Load the component from bytes.

        bytes_data (bytes): The result of `to_bytes`.
        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        RETURNS (PipeT): The component itself.
        RAISES (ValueError): If a part is missing or damaged, is from another kind of component, or
            is not from the same save as the other part.
        """
        saved = unpack_parts(bytes_data, self.name, self.vocab, exclude)
        return self._load(saved, folder="")

    def _load(self: PipeT, saved: dict[str, Any], folder: str) -> PipeT:
        """Load the contents of the files "cfg" and "model", unless they are excluded. `folder` is
        the directory with a slash at its end, for messages; empty if there is none. An error names
        the version that saved the component."""
        with naming_version(saved.get("cfg")):
            self._load_parts(saved, folder)
        return self

    def _load_parts(self, saved: dict[str, Any], folder: str) -> None:
        """Load the contents of the files: see `_load`. If they are inconsistent with each other or
        with the config, this is a ValueError."""
        if "cfg" in saved and "model" in saved:
            check_digest(saved["cfg"], saved["model"], where=f"{self.name}: {folder}model")
        # An error within `reading_part` becomes one that names the part and its file.
        with reading_part("cfg", self.name, folder):
            if "cfg" in saved:
                check_format(saved["cfg"])
                current = {**self.cfg, **self.calibration.to_dict()}
                self._load_cfg(check_cfg(saved["cfg"], current))
        with reading_part("model", self.name, folder):
            if "model" in saved:
                # If the model is loaded before the labels, the number of tags isn't known.
                has_labels = bool(self.labels) or "cfg" in saved
                expected_n_tags = len(self.chain_tags) if has_labels else None
                load_model(self.model, saved["model"], expected_n_tags)
            n_tags = self.model.maybe_get_dim("nO")
            if self.labels and n_tags not in (None, len(self.chain_tags)):
                raise ValueError(f"expected weights for {len(self.chain_tags)} tags, got {n_tags}")

    def _load_cfg(self, saved: Cfg) -> None:
        """Load the settings and the results of calibration docs from a saved cfg, which was checked
        before. Restore what depends on them: cost tables, the strings of labels, the extension of
        spans. An edited setting with a wrong value, or one that doesn't fit the labels, is a
        ValueError."""
        self.calibration = CalibrationState.from_dict(saved)
        self.cfg.update(follow_config(self.cfg, saved, self._configured))
        # The file of a cost or of a label tree may be missing, so its tables are saved, too.
        self.objective.restore(self.cfg["cost_tables"], self.tags)
        if self._decoding.restore is not None and saved["decoding_tables"]:
            self._decoding.restore(saved["decoding_tables"])
        # `cfg` may be edited by hand, so its settings are checked again.
        self.check_settings()
        for label in self.labels:
            self.vocab.strings.add(label)
        if self.confidence is not None:
            register(self.confidence)
        self.check_guarantee()
