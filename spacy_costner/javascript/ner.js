/**
 * Named entities by a pipeline of spacy_costner, without Python: in browsers, and in Node from 18.
 *
 *     import { load } from "./ner.js";
 *     const ner = await load("model.bin");
 *     ner("Ana Ruiz vive en Lima.");
 *     // [{ start: 0, end: 8, label: "PER", score: 0.98 }, { start: 17, end: 21, label: "LOC", … }]
 *
 * `costner page MODEL --module FOLDER` writes this module and the model file.
 */

import { fetchBytes, readModel } from "./model_file.js";
import { Recognizer } from "./recognizer.js";
import { makeTokenizer } from "./tokenizer.js";

/** @typedef {import("./posterior.js").Posterior} Posterior */
/** @typedef {import("./recognizer.js").Options} Options */
/** @typedef {import("./recognizer.js").Result} Result */

/**
 * Predicts the entities of a text, in order and without overlap.
 *
 * - `labels`: the labels that it predicts.
 * - `info`: what is known of the pipeline: name, lang, version, decoding, threshold, temperature,
 *   promise and others, as `describe_pipeline` in analysis/web_model.py collects them.
 * - `posterior(text)` and `decode(posterior, options)`: the two halves of the function, to
 *   predict a text again with other options in little time.
 *
 * It throws an Error if an option is unknown or out of its range, or doesn't fit the pipeline or
 * another option.
 *
 * @typedef {((text: string, options?: Options) => Result) & {
 *   labels: string[],
 *   info: any,
 *   posterior: (text: string) => Posterior,
 *   decode: (posterior: Posterior, options?: Options) => Result,
 * }} Ner
 */

/**
 * Loads a model file.
 * @param {string | URL | ArrayBuffer | Uint8Array | Response} source Its URL, its bytes, or the
 *   response of `fetch`.
 * @returns {Promise<Ner>}
 * @throws {Error} If it can't be fetched, is no model file, is damaged, or has another version.
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
