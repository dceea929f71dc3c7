"""`init`: create a commented config for `spacy train`, similar to `spacy init config`.

The options set the aim of the config (what to optimize) and the costs of mistakes. Everything else
is derived from them and from the training corpus, which is read once. All choices are collected in
a `Plan`, which is used to render the template.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from ...readers import KeptDocs
from ..vectors import learn_with_corpus
from .config_template import render_config
from .corpus_statistics import measure_corpus
from .cost_blocks import write_tree
from .init_options import InitOptions, check_options, refuse_existing
from .plan import Plan, make_plan

Fields = ParamSpec("Fields")
OptionsT = TypeVar("OptionsT")
ResultT = TypeVar("ResultT")


def takes_fields_of(
    make_options: Callable[Fields, OptionsT],
) -> Callable[[Callable[[OptionsT], ResultT]], Callable[Fields, ResultT]]:
    """Create a decorator for a function with a single argument, an options object. The decorated
    function accepts the fields of the object as arguments, and its signature lists them for type
    checkers and editors."""

    def decorate(function: Callable[[OptionsT], ResultT]) -> Callable[Fields, ResultT]:
        @wraps(function)
        def call(*args: Fields.args, **kwargs: Fields.kwargs) -> ResultT:
            return function(make_options(*args, **kwargs))

        returned = signature(function).return_annotation
        call.__signature__ = signature(make_options).replace(  # type: ignore[attr-defined]
            return_annotation=returned
        )
        return call

    return decorate


@takes_fields_of(InitOptions)
def init(options: InitOptions) -> str:
    """Create a config for `spacy train`. The arguments are the fields of `InitOptions`, where they
    are documented: `init(lang="es", train_path=path)`. For the defaults of arguments that are None,
    see docs/init.md. The config itself isn't written to a file. Only the label tree of
    `tree_by_prefix` and the vectors of `raw_paths` are.

    RETURNS (str): The config.
    RAISES (ValueError): If a loss, cost or aim is unknown, if arguments can't be combined, or if a
        file can't be read, lacks a label of the corpus, or already exists.
    RAISES (ImportError): If spaCy doesn't support the language, or SciPy is needed to learn vectors
        but isn't installed.
    """
    return make_config(options)


def make_config(options: InitOptions, kept: KeptDocs | None = None) -> str:
    """Create a config: see `init`.

    options (InitOptions): The options of the config.
    kept (KeptDocs | None): Stores the docs of the training corpus and the reader's report on them.
        If None, they aren't stored, and problems become warnings.
    RETURNS (str): The config.
    RAISES (ValueError, ImportError): See `init`.
    """
    check_options(options)
    options = options.completed()
    corpus = measure_corpus(
        options.train_path, options.lang, options.spans_key, options.reading, kept
    )
    plan = make_plan(options, corpus)
    write_files(plan)
    return render_config(plan)


def write_files(plan: Plan) -> None:
    """Write the files that the config refers to: the label tree of `tree_by_prefix` and the vectors
    of `raw_paths`.

    RAISES (ValueError): If a file already exists, no label contains the separator `tree_by_prefix`,
        or vectors can't be learned: see `learn_with_corpus`.
    """
    options = plan.options
    if options.tree_by_prefix is not None:
        assert options.tree_path is not None  # set by `InitOptions.completed`
        if not options.force:
            refuse_existing(options.tree_path)
        write_tree(options.tree_path, sorted(plan.corpus.label_counts), options.tree_by_prefix)
    if options.raw_paths:
        learn_with_corpus(
            options.raw_paths,
            options.train_path,
            options.vectors_folder,
            options.lang,
            options.reading,
        )
