/**
 * Named entity recognition with a spacy_costner pipeline, without Python. Runs in browsers and in
 * Node 18 or later.
 *
 *     import { load } from "./ner.js";
 *     const ner = await load("model.bin");
 *     ner("Ana Ruiz vive en Lima.");
 *     // [{ start: 0, end: 8, label: "PER", score: 0.98 }, { start: 17, end: 21, label: "LOC", … }]
 *
 * `costner page MODEL --module FOLDER` writes this module and the model file. See ner.d.ts for the
 * types of its exports.
 */

import { fetchBytes, readModel } from "./model_file.js";
import { Recognizer } from "./recognizer.js";
import { makeTokenizer } from "./tokenizer.js";

/** @typedef {import("./ner.js").Ner} Ner */
/** @typedef {import("./ner.js").Options} Options */
/** @typedef {import("./ner.js").Result} Result */
/** @typedef {import("./posterior.js").Posterior} Posterior */

/**
 * Loads a model file.
 * @param {string | URL | ArrayBuffer | Uint8Array | Response} source The URL, the bytes, or a
 *   response from `fetch`.
 * @returns {Promise<Ner>}
 * @throws {TypeError} If `source` has another type.
 * @throws {Error} If the file can't be fetched, isn't a model file, is damaged or has another
 *   version.
 */
export async function load(source) {
  const model = await readModel(await fetchBytes(source));
  const recognizer = new Recognizer(model, makeTokenizer(model.header.tokenizer));
  /** @type {(text: string, options?: Options) => Result} */
  const ner = (text, options) => recognizer.decode(recognizer.posterior(text), options);
  return Object.assign(ner, {
    labels: recognizer.labels,
    info: recognizer.info,
    posterior: (/** @type {string} */ text) => recognizer.posterior(text),
    decode: (/** @type {Posterior} */ posterior, /** @type {Options | undefined} */ options) =>
      recognizer.decode(posterior, options),
  });
}
