"""The tasks of tables 1 and 2, the criteria, and how each is trained."""

from itertools import product
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Union

from spacy.training import Example

from ..corpora import ASSETS
from ..linear import fit_batch, fit_online
from ..tagger import SEQUENTIAL, Block, Tagger, features_of


class Task(NamedTuple):
    """A task of the paper, or one in its place.

    title (str): What it is called on the page.
    folder (str): Where its files are, below assets.
    train (str), development (Optional[str]), test (str): The files.
    features (Block): What is seen of tokens.
    scheme (str): The tag scheme.
    """

    title: str
    folder: str
    train: str
    development: Optional[str]
    test: str
    features: Block
    scheme: str = "IOB2"

    def path(self, file: str) -> Path:
        """Where a file is."""
        return ASSETS / self.folder / file


CHUNK_FEATURES = features_of("mce_f")
"""Words and parts of speech, as in Kudo & Matsumoto (2001), and pairs of neighbours."""

SPELLING_FEATURES = {
    **CHUNK_FEATURES,
    "windows": {"ORTH": 2, "TAG": 2, "SHAPE": 1, "prefix": 0, "suffix": 0},
    "affixes": [2, 3],
    "min_count": {"ORTH+ORTH": 2},
}
"""Also how words are spelled, which the paper has for entities only."""

ENTITY_FEATURES = {
    "@misc": "spacy_costner.Features.v1",
    "windows": {"ORTH": 2, "TAG": 2, "SHAPE": 2, "prefix": 2, "suffix": 2},
    "affixes": [1, 2, 3, 4],
    "bigrams": {"ORTH": 2, "TAG": 2, "SHAPE": 2},
}
"""Also what characters words are made of, and how they begin and end: section 5.2."""

TASKS = {
    "conll2000": Task(
        "CoNLL-2000 chunking", "conll2000", "train.txt", None, "test.txt", CHUNK_FEATURES
    ),
    "conll2000_biluo": Task(
        "CoNLL-2000 chunking, other tags and features",
        "conll2000",
        "train.txt",
        None,
        "test.txt",
        SPELLING_FEATURES,
        "BILUO",
    ),
    "conll2003_en": Task(
        "CoNLL-2003 English",
        "conll2003_en",
        "eng.train",
        "eng.testa",
        "eng.testb",
        ENTITY_FEATURES,
    ),
    "conll2002_es": Task(
        "CoNLL-2002 Spanish",
        "conll2002_es",
        "esp.train",
        "esp.testa",
        "esp.testb",
        ENTITY_FEATURES,
    ),
}


class Batch(NamedTuple):
    """Training by L-BFGS, with the penalty |w|^2 / C.

    n (Optional[int]): C = 10^n; None for no penalty.
    max_iter (Optional[int]), tolerance (float): When it ends: see `fit_batch`.
    """

    n: Optional[int]
    max_iter: Optional[int] = None
    tolerance: float = 1e-4

    def __str__(self) -> str:
        penalty = "no penalty" if self.n is None else f"C = 10^{self.n}"
        return penalty if self.max_iter is None else f"{penalty}, {self.max_iter} iterations"

    def model(self) -> Block:
        """Settings of the model."""
        return {}

    def fit(self, linear: Tagger, examples: Sequence[Example]) -> str:
        """Train. How it ended."""
        c2 = 0.0 if self.n is None else 10.0**-self.n
        return fit_batch(
            linear, examples, c2=c2, max_iter=self.max_iter, tolerance=self.tolerance
        ).describe()


class Online(NamedTuple):
    """Training by AdaGrad, with averaged weights.

    learn_rate (float): The length of the first step of a weight.
    epochs (int): Passes through the data.
    batch_size (int): Sentences for each step.
    """

    learn_rate: float
    epochs: int
    batch_size: int = 4

    def __str__(self) -> str:
        return f"steps of {self.learn_rate}, {self.epochs} epochs"

    def model(self) -> Block:
        """Settings of the model."""
        return {"learn_rate": self.learn_rate}

    def fit(self, linear: Tagger, examples: Sequence[Example]) -> str:
        """Train. How it ended."""
        return fit_online(
            linear, examples, epochs=self.epochs, batch_size=self.batch_size
        ).describe()


Setting = Union[Batch, Online]
OPTIMIZERS = {"Batch": Batch, "Online": Online}


class Criterion(NamedTuple):
    """A row of the tables: what is minimised, from where and how.

    name (str): Its name.
    loss (Block): Its block of the config.
    settings (Sequence[Setting]): What is tried on the development part.
    from_map (bool): Whether it starts from the MAP model, or from weights of 0.
    seeds (Sequence[int]): For the order of the sentences, when the test part is scored.
    """

    name: str
    loss: Block
    settings: Sequence[Setting]
    from_map: bool = False
    seeds: Sequence[int] = (0,)


MCE_SIG = {"@losses": "spacy_costner.MCE.v1", "smoothing": "sigmoid", "psi": "inf"}
MCE_LOG = {"@losses": "spacy_costner.MCE.v1", "smoothing": "logistic", "psi": "inf"}
MCE_F = {"@losses": "spacy_costner.MCEF.v1", "psi": "inf"}
EXPECTED_F = {"@losses": "spacy_costner.MCEF.v1", "psi": 1}


class Plan(NamedTuple):
    """What is done with a task.

    by_map (Criterion): The model that others start from, and are compared with.
    others (Sequence[Criterion]): The other rows.
    limit (Optional[int]): The most sentences of each file.
    """

    by_map: Criterion
    others: Sequence[Criterion]
    limit: Optional[int] = None


def make_map(exponents: Sequence[int]) -> Criterion:
    """MAP, with C = 10^n of these n."""
    return Criterion("MAP", SEQUENTIAL, [Batch(n) for n in exponents], from_map=True)


def make_ml(max_iter: int) -> Criterion:
    """ML, stopped."""
    return Criterion("ML", SEQUENTIAL, [Batch(None, max_iter)])


def from_zero(settings: Sequence[Setting]) -> List[Criterion]:
    """The other rows of table 1."""
    return [
        Criterion("MCE (sig), from 0", MCE_SIG, settings),
        Criterion("MCE (log), from 0", MCE_LOG, settings),
        Criterion("MCE-F, from 0", MCE_F, settings),
    ]


ML_ONLINE, BY_F, BY_EXPECTED_F = "ML, online", "MCE-F", "MCE-F, expected counts"


def from_map(settings: Sequence[Setting], seeds: Sequence[int]) -> List[Criterion]:
    """The rows of table 2, and what they are to be compared with: ML trained in the same way."""
    losses: Dict[str, Block] = {
        ML_ONLINE: SEQUENTIAL,
        "MCE (sig)": MCE_SIG,
        BY_F: MCE_F,
        BY_EXPECTED_F: EXPECTED_F,
    }
    return [Criterion(name, loss, settings, True, seeds) for name, loss in losses.items()]


def grid(learn_rates: Sequence[float], epochs: Sequence[int]) -> List[Setting]:
    """All pairs of settings of online training."""
    return [Online(*pair) for pair in product(learn_rates, epochs)]


STEPS = grid((0.03, 0.1), (5,))
ENTITIES = Plan(make_map((0, 1)), [make_ml(50), *from_map(STEPS, (0,))])

FULL = {
    "conll2000": Plan(
        make_map((0, 1)),
        [make_ml(50), *from_zero(grid((0.1,), (5,))), *from_map(STEPS, (0, 1))],
    ),
    "conll2000_biluo": Plan(make_map((0, 1)), from_map(STEPS, (0, 1))),
    "conll2003_en": ENTITIES,
    "conll2002_es": ENTITIES,
}

SOME = grid((0.1,), (5,))
QUICK = {
    "conll2000": Plan(
        make_map((0,)), [make_ml(50), *from_zero(SOME), *from_map(SOME, (0,))], limit=400
    )
}
