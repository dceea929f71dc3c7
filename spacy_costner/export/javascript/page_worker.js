/**
 * Predicts entities in the background of a page, which stays usable.
 *
 * The page sends messages:
 *
 *     {kind: "load", bytes}              the model file
 *     {kind: "predict", texts, options}  the entities of texts; without texts, of the last ones
 *
 * It is answered by `{kind: "ready", labels, info}`, `{kind: "progress", done, total}`, in
 * characters, `{kind: "result", docs, nTokens, milliseconds}` or `{kind: "error", message}`.
 */

import { load } from "./ner.js";

/** The most tokens of texts whose posteriors are kept, for other options. */
const MAX_KEPT = 100_000;
const MILLISECONDS_BETWEEN_REPORTS = 100;

/** @type {import("./ner.js").Ner} */
let ner;
/** @type {string[]} */
let texts = [];
/** @type {(import("./posterior.js").Posterior | null)[]} By text, null if it isn't kept. */
let posteriors = [];

/**
 * Predicts the entities of all texts, and sends its progress to the page.
 * @param {import("./ner.js").Options} options
 */
function predict(options) {
  const start = performance.now();
  const total = texts.reduce((sum, text) => sum + text.length, 0);
  let lastReport = start;
  let done = 0;
  let nTokens = 0;
  const docs = texts.map((text, i) => {
    const posterior = posteriors[i] ?? ner.posterior(text);
    nTokens += posterior.tokens.length;
    posteriors[i] = nTokens <= MAX_KEPT ? posterior : null;
    const result = ner.decode(posterior, options);
    done += text.length;
    const now = performance.now();
    if (now - lastReport > MILLISECONDS_BETWEEN_REPORTS) {
      lastReport = now;
      postMessage({ kind: "progress", done, total });
    }
    // A message has no properties of arrays, such as `guaranteed` of the result.
    return { entities: [...result], guaranteed: result.guaranteed };
  });
  postMessage({ kind: "result", docs, nTokens, milliseconds: performance.now() - start });
}

addEventListener("message", async ({ data }) => {
  try {
    if (data.kind === "load") {
      ner = await load(data.bytes);
      postMessage({ kind: "ready", labels: ner.labels, info: ner.info });
      return;
    }
    if (data.texts !== undefined) {
      texts = data.texts;
      posteriors = texts.map(() => null);
    }
    predict(data.options);
  } catch (error) {
    postMessage({ kind: "error", message: error instanceof Error ? error.message : String(error) });
  }
});
