"""Datasets of Hugging Face on disk. The library `datasets` reads them (extra `datasets`)."""

from pathlib import Path
from typing import Any, Iterator, List, Optional

from spacy.tokens import Doc

from ..validation import require
from .files import CorpusError, Place
from .found import Context
from .jsonl import task_from_json
from .tagged import find_tag_key, read_tagged
from .tasks import Annotated, tasks_to_docs


def read_dataset(path: Path, context: Context) -> Iterator[Doc]:
    """Read a dataset that `Dataset.save_to_disk` has saved: tokens and tags, or texts and spans.

    path (Path): The folder.
    context (Context): Its options have how many sentences a doc has.
    RETURNS (Iterator[Doc]): The docs.
    RAISES (ImportError): If `datasets` isn't installed.
    RAISES (CorpusError): If the folder has several splits, or a row isn't annotated text.
    """
    dataset = load(path)
    place = Place(path, 1, "row")
    rows = ((Place(path, i + 1, "row"), row) for i, row in enumerate(dataset))
    if not len(dataset):
        raise place.refuse("expected annotated text, got an empty dataset")
    key = find_tag_key(dataset[0])
    if key is None:
        context.found.add_file("Hugging Face dataset of texts and spans")
        tasks = (Annotated(at, None, task_from_json(row, at)) for at, row in rows)
        return tasks_to_docs(tasks, context)
    names = context.options.tag_names or feature_names(dataset.features[key])
    options = context.options._replace(tag_names=names)
    return read_tagged(rows, place, key, "Hugging Face dataset", context._replace(options=options))


def load(path: Path) -> Any:
    """Load a dataset with the library `datasets`; see `read_dataset`."""
    missing = f"{path}: a Hugging Face dataset requires the library `datasets`"
    datasets = require("datasets", "datasets", missing)
    try:
        dataset = datasets.load_from_disk(str(path))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CorpusError(f"{path}: expected a Hugging Face dataset, got: {error}") from error
    if not isinstance(dataset, datasets.Dataset):
        splits = " or ".join(str(path / name) for name in dataset)
        raise CorpusError(f"{path}: expected one split, got {len(dataset)}: give {splits}")
    return dataset


def feature_names(feature: Any) -> Optional[List[str]]:
    """The names of tags that are numbers, from the features of a dataset."""
    while feature is not None and not hasattr(feature, "names"):
        feature = getattr(feature, "feature", None)
    return None if feature is None else list(feature.names)
