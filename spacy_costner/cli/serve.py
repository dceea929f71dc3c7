"""Serve an annotation session: users annotate texts in the browser, while a model is trained on
their answers and chooses the next texts.

Some texts are *evaluation texts*. The model isn't trained on answers for these texts, except in
`train_final`."""

import socket
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import spacy
import typer
from spacy.language import Language
from typer import Argument, Option

from ..files.saving import check_folder, locked
from ..progress import progress
from ..readers import ReadOptions, Task, doc_to_task, read_docs, read_texts
from ..readers.files import SURROGATE, encodable
from ..serve.session import AnnotationSession
from ..serve.session_training import COMPONENT
from ..serve.store import AnnotationStore
from ..validation import require
from ..workflows.components import get_component
from ..workflows.config.loading import load_pipeline
from ..workflows.saved_strings import save_pipeline
from .command_line import reads_corpora
from .options import CodeOption, GpuOption
from .output import errors_shown

LOOPBACK = "127.0.0.1"
"""The address that can only be reached from this computer."""

GO_ON = "All answers are saved: run the same command again to continue."
"""The message to print after Ctrl-C."""


@reads_corpora
def serve_cli(
    folder: Annotated[
        Path, Argument(help="Folder of the session: texts, answers, models", file_okay=False)
    ],
    labels: Annotated[
        str | None, Option("--labels", help="Comma-separated labels; kept in the folder")
    ] = None,
    lang: Annotated[
        str | None, Option("--lang", "-l", help="Language of the tokenizer; kept in the folder")
    ] = None,
    texts_path: Annotated[
        Path | None,
        Option("--texts", help="Texts to add: .txt with a text per line, or a corpus", exists=True),
    ] = None,
    model: Annotated[
        str | None, Option("--model", help="Trained pipeline to start from: a package or a folder")
    ] = None,
    proposals_path: Annotated[
        Path | None,
        Option(
            "--proposals",
            help="Corpus annotated by another annotator, such as an LLM: its entities are "
            "proposed, and texts are shown in random order. Without --texts, its texts are added",
            exists=True,
        ),
    ] = None,
    port: Annotated[
        int, Option("--port", min=0, max=65535, help="Port, or 0 for any free port")
    ] = 8765,
    host: Annotated[
        str, Option("--host", help="Address to listen on. Any other than the default needs --token")
    ] = LOOPBACK,
    token: Annotated[str | None, Option("--token", help="Secret that every request needs")] = None,
    final_path: Annotated[
        Path | None,
        Option(
            "--final",
            help="Don't serve: train on all answers, including the evaluation texts, "
            "and save the pipeline in this folder",
            file_okay=False,
        ),
    ] = None,
    has_label_studio: Annotated[
        bool,
        Option(
            "--label-studio",
            help="Serve as the backend for Label Studio: texts and labels come from its project",
        ),
    ] = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
    *,
    reading: ReadOptions,
) -> None:
    """
    Annotate texts in the browser, with active learning. A linear model is trained on your answers
    in the background, suggests entities, and chooses the next text. Some texts are drawn at random
    to evaluate the model, which is not trained on them. At the end, train on all answers with
    --final. Each answer is saved immediately: press Ctrl-C to stop, and run the command again to
    continue.
    """
    with errors_shown(GO_ON, with_phases=False):
        check_host(host, token)
        if final_path is None:
            require_server()
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder) as is_ours:
            if is_ours is False:  # None if locks aren't supported: see `locked`
                raise ValueError(
                    f"{folder}: expected a session that isn't being served, got one that is"
                )
            store = AnnotationStore(folder)
            label_list, lang = keep_settings(store, labels, lang, needs_labels=not has_label_studio)
            added_path = texts_path or proposals_path
            add_texts(store, added_path, lang, reading, needs_texts=not has_label_studio)
            if final_path is not None:
                train_final(AnnotationSession(store, labels=label_list, lang=lang), final_path)
                return
            start_model: Language | None = None
            if model is not None:
                start_model = load_pipeline(model, code_path, use_gpu)
                get_component(start_model, COMPONENT)  # raises an error if it is missing
            proposals: dict[str, Task] | None = None
            if proposals_path is not None:
                docs = read_docs(spacy.blank(lang), proposals_path, reading)
                proposals = {doc.text: doc_to_task(doc) for doc in docs}
            session = AnnotationSession(
                store,
                labels=label_list,
                lang=lang,
                start_model=start_model,
                proposals=proposals,
            )
            serve(session, host, port, token)


def check_host(host: str, token: str | None) -> None:
    """Check that a token is set if the address can be reached from other computers, and that the
    token can be encoded in UTF-8."""
    if host != LOOPBACK and not token:
        raise ValueError(
            "--host: expected a --token, unless only this computer can reach the address "
            f"({LOOPBACK}), got {host} without one"
        )
    if token and SURROGATE.search(token):
        raise ValueError(
            "--token: expected text that can be encoded in UTF-8, got bytes that can't be"
        )


def require_server() -> Any:
    """Check that the packages for the server are installed. Return the `uvicorn` module."""
    missing = "costner serve requires starlette and uvicorn"
    require("starlette", "serve", missing)
    return require("uvicorn", "serve", missing)


def keep_settings(
    store: AnnotationStore, labels: str | None, lang: str | None, *, needs_labels: bool
) -> tuple[list[str], str]:
    """Determine the labels and the language of a session, and save them to its folder. Command-line
    options take precedence over saved settings. Raise an error if labels are required but there are
    none, or if the language differs from the session's language."""
    saved = store.settings
    label_list = saved.get("labels", [])
    if labels is not None:
        names = [name.strip() for name in labels.split(",")]
        label_list = list(dict.fromkeys(filter(None, names)))  # unique and non-empty, in order
        if SURROGATE.search(labels):
            raise ValueError(
                f"--labels: expected text that can be encoded in UTF-8, got {encodable(labels)}"
            )
    if not label_list and needs_labels:
        raise ValueError("--labels: expected labels in a new session, such as PER,ORG, got none")
    saved_lang = saved.get("lang")
    if lang is not None and saved_lang is not None and lang != saved_lang:
        raise ValueError(
            f"--lang: expected {saved_lang!r}, the language of the session, got {lang!r}"
        )
    lang = lang or saved_lang or "xx"  # spaCy's code for multi-language pipelines
    spacy.blank(lang)  # raises an error if the language isn't supported
    settings = {"labels": label_list, "lang": lang}
    if settings != saved:
        store.save_settings(settings)
    return label_list, lang


def add_texts(
    store: AnnotationStore,
    path: Path | None,
    lang: str,
    reading: ReadOptions,
    *,
    needs_texts: bool,
) -> None:
    """Add texts from a file, if given, to a session and print the number of texts. Duplicate and
    empty texts are skipped, and their number is printed. Raise an error if texts are required but
    the session still has none."""
    if path is not None:
        docs = progress(read_texts(spacy.blank(lang), path, reading), desc="read", unit="doc")
        texts = [doc.text for doc in docs]
        n_added = store.add_texts(texts)
        line = f"{n_added:,} texts added from {path}"
        if n_added < len(texts):
            line += f"; {len(texts) - n_added:,} skipped, because they are repeated or empty"
        typer.echo(line)
    if not store.texts and needs_texts:
        raise ValueError("--texts: expected texts in a new session, got none")
    n_evaluation = sum(text.is_evaluation for text in store.texts.values())
    typer.echo(
        f"{len(store.texts):,} texts, {n_evaluation:,} of them evaluation texts; "
        f"{len(store.answers):,} have answers"
    )
    if store.n_others:
        typer.echo(
            f"{store.n_others:,} annotated texts in {store.train_path.parent} are not answers of "
            "this session. They stay there, and the session doesn't train on them"
        )


def train_final(session: AnnotationSession, path: Path) -> None:
    """Train a pipeline on all answers, including answers for evaluation texts, and save it."""
    check_folder(path)
    trained = session.train_on_all()
    save_pipeline(path, trained.nlp)
    typer.echo(
        f"trained on all {trained.point.n_texts:,} annotated texts: none is left to evaluate this "
        "pipeline"
    )
    typer.secho(f"Written to {path}", fg="green")


def serve(session: AnnotationSession, host: str, port: int, token: str | None) -> None:
    """Serve the annotation page of a session until the user presses Ctrl-C. If `port` is 0, the
    system chooses a free port. If `token` is None, requests don't need a token."""
    uvicorn = require_server()
    from ..serve.app import make_app  # imports starlette

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as listener:
        # Allow reusing the port of a server that has just stopped.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ValueError(
                f"--port: expected a free port at {host}, got {port}: {error.strerror}"
            ) from None
        address = page_address(host, listener.getsockname()[1], token)
        typer.echo(f"Annotate at {address}  (Ctrl-C stops)")
        session.start()
        config = uvicorn.Config(make_app(session, token=token), log_level="warning")
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            session.stop()


def page_address(host: str, port: int, token: str | None) -> str:
    """Return the URL of the annotation page, including the token, if any."""
    # IPv6 addresses contain colons and must be enclosed in brackets.
    host_in_address = f"[{host}]" if ":" in host else host
    address = f"http://{host_in_address}:{port}/"
    if token:
        address += f"?token={quote(token, safe='')}"
    return address
