"""The code blocks of the docs, and running those of a page from its top to its end."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_SMALL_PIPELINE = ["annotation", "data", "maintaining", "service"]
"""Pages whose Python examples the fast tests run, with a pipeline of their own."""

BLOCK = re.compile(
    r"(?:^<!-- not run: ([^\n]*) -->\n+)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
ENVIRON = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}


class Block(NamedTuple):
    """A block of code of a page."""

    place: str  # the page and the line
    reason: str  # why it can't be run here, from the comment before it; "" if it can
    language: str  # bash, python, or what is shown: ini, json, text, yaml
    code: str


def read_blocks(page: Path) -> list[Block]:
    """The blocks of code of a page, from its top to its end."""
    text = page.read_text(encoding="utf8")
    name = page.relative_to(ROOT).as_posix()
    blocks = []
    for match in BLOCK.finditer(text):
        reason, language, code = match.groups()
        line = text.count("\n", 0, match.start(2)) + 1
        blocks.append(Block(f"{name}:{line}", reason or "", language, code))
    return blocks


def run_block(block: Block, names: dict[str, Any]) -> str:
    """Run a block in the working directory, and return what its commands print. A block that begins
    with `# name.suffix` is a file. The Python blocks of a page share their names."""
    title = re.match(r"# (\w+\.\w+)\n", block.code)
    if block.reason:
        return ""
    if title:
        Path(title[1]).write_text(block.code, encoding="utf8")
    elif block.language == "python":
        exec(compile(block.code, block.place, "exec"), names)
    elif block.language == "bash":
        return run_commands(block.code, block.place)
    return ""


def run_commands(commands: str, place: str) -> str:
    """Run commands of a shell until one fails, which is an error that shows its output."""
    words = ["bash", "-euxc", commands]
    process = subprocess.run(words, env=ENVIRON, capture_output=True, text=True)
    assert process.returncode == 0, f"{place}\n{process.stdout}{process.stderr}"
    return process.stdout
