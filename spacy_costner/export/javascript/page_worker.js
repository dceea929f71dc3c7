/**
 * Predicts entities in the background, to keep the page responsive.
 *
 * The page sends these messages:
 *
 *     {kind: "load", bytes}              loads the model file
 *     {kind: "predict", texts, options}  predicts entities; without texts, the last texts are used
 *
 * The worker replies with `{kind: "ready", labels, info}`, `{kind: "progress", done, total}` in
 * characters, `{kind: "result", docs, nTokens, milliseconds}` or `{kind: "error", message}`.
 */

import { load } from "./ner.js";

/** The maximum number of tokens for which posteriors are cached, in case the options change. */
const MAX_KEPT = 100_000;
const MILLISECONDS_BETWEEN_REPORTS = 100;

/** @type {import("./ner.js").Ner} */
let ner;
/** @type {string[]} */
let texts = [];
/** @type {(import("./posterior.js").Posterior | null)[]} The posterior of each text, if cached. */
let posteriors = [];

/**
 * Predicts the entities of all texts, and reports the progress to the page.
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
    // Messages don't include properties of arrays, e.g. `guaranteed` of the result.
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
