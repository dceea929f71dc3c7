/**
 * Named entities by a pipeline of spacy_costner, without Python: in browsers, and in Node from 18.
 *
 *     import { load } from "./ner.js";
 *     const ner = await load("model.bin");
 *     ner("Ana Ruiz vive en Lima.");
 *     // [{ start: 0, end: 8, label: "PER", score: 0.98 }, { start: 17, end: 21, label: "LOC", … }]
 *
 * `costner page MODEL --module FOLDER` writes this module and the model file. The types of what it
 * exports are in ner.d.ts, next to it.
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
 * @param {string | URL | ArrayBuffer | Uint8Array | Response} source Its URL, its bytes, or the
 *   response of `fetch`.
 * @returns {Promise<Ner>}
 * @throws {TypeError} If `source` is none of these.
 * @throws {Error} If it can't be fetched, isn't a model file, is damaged, or has another version.
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
