/** A model file and what Python predicts with it: see scripts/make_page_golden.py. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { load } from "../../spacy_costner/export/javascript/ner.js";

const golden = JSON.parse(await readFile(new URL("golden.json", import.meta.url), "utf8"));
const bytes = Buffer.from(golden.model, "base64");
const ner = await load(bytes);

test("tokens and entities are the same as in Python", () => {
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
  await assert.rejects(load(42), { name: "TypeError", message: /^source: expected a URL, .*, got 42$/ });
  await assert.rejects(load(new Response("", { status: 404 })), /status 404/);
});

test("a word of a megabyte, and a long line are read", () => {
  assert.deepEqual([...ner("x".repeat(1e6))], []);
  const sentence = golden.cases.at(-1).text.replaceAll("\n", " ");
  const text = `${sentence} `.repeat(Math.ceil(1e5 / sentence.length));
  assert.ok(ner(text).length > 100);
});

test("what is no text is refused", () => {
  const notTexts = [
    [{ text: "Rome" }, "an instance of Object"],
    [["Rome", "Oslo"], "an instance of Array"],
    [new String("Rome"), "an instance of String"],
    [new TextEncoder().encode("Rome"), "an instance of Uint8Array"],
    [Object.create(null), "an instance of Object"],
    [() => "Rome", "a function"],
    [12345, "12345"],
    [NaN, "NaN"],
    [5n, "5"],
    [true, "true"],
    [Symbol("Rome"), "Symbol(Rome)"],
    [null, "null"],
    [undefined, "undefined"],
  ];
  for (const [value, got] of notTexts) {
    const expected = { name: "TypeError", message: `text: expected a string, got ${got}` };
    assert.throws(() => ner(value), expected);
    assert.throws(() => ner(value, { tokens: true }), expected);
    assert.throws(() => ner.posterior(value), expected);
  }
  assert.throws(() => ner(), { name: "TypeError" });
});

test("options of another type are refused", () => {
  const long = "x".repeat(100);
  for (const [options, message] of [
    [null, "options: expected an object, got null"],
    [0.5, "options: expected an object, got 0.5"],
    ["Oslo", 'options: expected an object, got "Oslo"'],
    [long, `options: expected an object, got "${"x".repeat(40)}"…`],
    [["Oslo"], "options: expected an object, got an instance of Array"],
    [{ labels: 0.5 }, "labels: expected an object, got 0.5"],
    [{ labels: ["PER"] }, "labels: expected an object, got an instance of Array"],
    [{ threshold: null }, "threshold: expected a value, or undefined if it is left out, got null"],
    [{ bias: null }, "bias: expected a value, or undefined if it is left out, got null"],
  ]) {
    assert.throws(() => ner("Rome", options), { name: "TypeError", message });
    assert.throws(() => ner.decode(ner.posterior("Rome"), options), { name: "TypeError", message });
  }
  const { text } = golden.cases.at(-1);
  const options = { threshold: undefined, labels: undefined, decoding: undefined };
  assert.deepEqual(ner(text, options), ner(text));
});

test("what is no posterior of the model is refused", async () => {
  const other = await load(bytes);
  for (const [posterior, got] of [
    ["Rome", '"Rome"'],
    [undefined, "undefined"],
    [{ text: "Rome", tokens: [] }, "an instance of Object"],
    [other.posterior("Rome"), "an instance of Posterior"],
  ]) {
    const message = `posterior: expected what \`posterior\` of this model returns, got ${got}`;
    assert.throws(() => ner.decode(posterior), { name: "TypeError", message });
  }
});
