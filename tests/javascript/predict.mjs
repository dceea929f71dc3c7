/**
 * Predicts the entities of texts in Node, for comparisons with Python.
 *
 *     node predict.mjs MODEL.bin TEXTS.json RESULTS.json
 *
 * TEXTS.json has a list of objects with a "text", and with "tokens" where these are given, by
 * [start, end] in UTF-16 units, and an object of "options" for all. RESULTS.json gets the result of
 * each text, with the probabilities of all entities above the "floor", if there is one; the words
 * and the CPU seconds that loading and predicting took.
 */

import { readFile, writeFile } from "node:fs/promises";

import { readModel } from "../../spacy_costner/export/javascript/model_file.js";
import { Recognizer } from "../../spacy_costner/export/javascript/recognizer.js";

const [modelPath, textsPath, resultsPath] = process.argv.slice(2);
const { texts, options, floor } = JSON.parse(await readFile(textsPath, "utf8"));

/** The CPU seconds since some other time. */
const cpuSince = (begin) => {
  const { user, system } = process.cpuUsage(begin);
  return (user + system) / 1e6;
};

const beginLoading = process.cpuUsage();
const model = await readModel(await readFile(modelPath));
let tokenize = () => [];
if (texts.some(({ tokens }) => tokens === undefined)) {
  const { makeTokenizer } = await import("../../spacy_costner/export/javascript/tokenizer.js");
  tokenize = makeTokenizer(model.header.tokenizer);
}
const recognizer = new Recognizer(model, tokenize);
const load = cpuSince(beginLoading);

const results = [];
let words = 0;
const begin = process.cpuUsage();
for (const { text, tokens } of texts) {
  const posterior = recognizer.posterior(
    text,
    tokens?.map(([start, end]) => ({ text: text.slice(start, end), start, end })),
  );
  words += posterior.tokens.length;
  const entities = recognizer.decode(posterior, options ?? {});
  const result = { entities };
  if (entities.guaranteed !== undefined) {
    result.guaranteed = entities.guaranteed;
  }
  if (options?.tokens) {
    result.tokens = entities.tokens.map(({ start, end }) => [start, end]);
  }
  if (floor !== undefined) {
    result.likely = posterior.likelyEntities(floor).map(({ begin, end, label, prob }) => ({
      start: posterior.tokens[begin].start,
      end: posterior.tokens[end - 1].end,
      label: posterior.tags.labels[label],
      score: prob,
    }));
  }
  results.push(result);
}
const seconds = cpuSince(begin);
await writeFile(resultsPath, JSON.stringify({ results, words, seconds, load }));
