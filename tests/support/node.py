"""Modules of JavaScript in Node, which answers a question a line."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import spacy_costner

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="requires Node")
MODULES = Path(spacy_costner.__file__).parent / "export" / "javascript"

LOOP = """
import { createInterface } from "node:readline";
%s
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))));
}
"""


class Node:
    """A process of Node that answers questions."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, question: Any) -> Any:
        """The answer to a question. Both are what JSON can have."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps(question)}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "Node has ended: see its error output"
        return json.loads(answer)


@contextmanager
def node(script: str) -> Iterator[Node]:
    """Start Node with a script that defines `answer(question)`. In the script, `${MODULES}` stands
    for the folder of our modules: it can import `${MODULES}/tokenizer.js`."""
    assert NODE is not None
    script = LOOP % script.replace("${MODULES}", MODULES.as_uri())
    process = subprocess.Popen(
        [NODE, "--input-type=module", "--eval", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Node(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
