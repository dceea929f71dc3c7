/** A model file and what Python predicts with it: see scripts/make_page_golden.py. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { load } from "../../spacy_costner/javascript/ner.js";

const golden = JSON.parse(await readFile(new URL("golden.json", import.meta.url), "utf8"));
const bytes = Buffer.from(golden.model, "base64");
const ner = await load(bytes);

test("tokens and entities are those of Python", () => {
  let nEntities = 0;
  for (const { text, tokens, entities } of golden.cases) {
    const found = ner(text, { tokens: true });
    assert.deepEqual(found.tokens.map(({ start, end }) => text.slice(start, end)), tokens);
    const withoutScores = ({ start, end, label }) => ({ start, end, label });
    assert.deepEqual(found.map(withoutScores), entities.map(withoutScores), text);
    found.forEach(({ score }, i) => {
      const difference = Math.abs(score - entities[i].score);
      assert.ok(difference < 1e-5, `${text}: ${score}, expected ${entities[i].score}`);
    });
    nEntities += entities.length;
  }
  assert.ok(nEntities > 20);
});

test("the module says what it is", () => {
  assert.deepEqual(ner.labels, ner.info.labels);
  assert.equal(ner.info.lang, "en");
  assert.equal(ner.info.decoding, "threshold");
});

test("a text can be decoded again with other options", () => {
  const text = golden.cases.at(-1).text;
  const posterior = ner.posterior(text);
  const numbers = new Set();
  for (const threshold of [0.01, 0.9, 0.5]) {
    const decoded = ner.decode(posterior, { threshold });
    assert.deepEqual(decoded, ner(text, { threshold }));
    numbers.add(decoded.length);
  }
  assert.equal(numbers.size, 3); // each threshold finds another number of entities
});

test("a low threshold finds what a high one finds, and more", () => {
  let nFew = 0;
  let nMore = 0;
  for (const { text } of golden.cases) {
    const few = ner(text, { threshold: 0.8 });
    const more = ner(text, { threshold: 0.5 });
    nFew += few.length;
    nMore += more.length;
    for (const entity of few) {
      assert.ok(more.some(({ start, end, label }) =>
        start === entity.start && end === entity.end && label === entity.label));
    }
  }
  assert.ok(0 < nFew && nFew < nMore, `${nFew} and ${nMore} entities`);
});

test("a model is loaded from bytes, buffers, responses and URLs", async () => {
  const { mkdtemp, rm, writeFile } = await import("node:fs/promises");
  const { tmpdir } = await import("node:os");
  const { pathToFileURL } = await import("node:url");
  const folder = await mkdtemp(`${tmpdir()}/costner-`);
  try {
    await writeFile(`${folder}/model.bin`, bytes);
    const url = pathToFileURL(`${folder}/model.bin`);
    const buffer = new Uint8Array(bytes).buffer;
    for (const source of [buffer, new Response(bytes), url, url.href]) {
      assert.deepEqual((await load(source)).labels, ner.labels);
    }
  } finally {
    await rm(folder, { recursive: true });
  }
  await assert.rejects(load(42), /load: expected a URL/);
  await assert.rejects(load(new Response("", { status: 404 })), /status 404/);
});

test("a word of a megabyte, and a long line are read", () => {
  assert.deepEqual([...ner("x".repeat(1e6))], []);
  const sentence = golden.cases.at(-1).text.replaceAll("\n", " ");
  const text = `${sentence} `.repeat(Math.ceil(1e5 / sentence.length));
  assert.ok(ner(text).length > 100);
});
