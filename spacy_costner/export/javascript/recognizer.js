/**
 * The recognizer, which predicts the entities of texts using a model file and a tokenizer.
 */

import { ChainScores, ForwardBackward, Temperature } from "./chain.js";
import { decode } from "./decoding.js";
import { trim } from "./entities.js";
import { Emissions, Features } from "./features.js";
import { guaranteedSet } from "./guarantee.js";
import { Posterior } from "./posterior.js";
import { checkObject, describe, typeError } from "./type_errors.js";

/** @typedef {import("./chain.js").Tags} Tags */
/** @typedef {import("./decoding.js").Decoding} Decoding */
/** @typedef {import("./features.js").Doc} Doc */
/** @typedef {import("./features.js").IdsOfTokens} IdsOfTokens */
/** @typedef {import("./model_file.js").Model} Model */
/** @typedef {import("./ner.js").Options} Options */
/** @typedef {import("./ner.js").PredictedEntity} PredictedEntity */
/** @typedef {import("./ner.js").Result} Result */
/** @typedef {import("./ner.js").Token} Token */

/** The options of a prediction. See `Options` in ner.d.ts. */
const OPTIONS = [
  "threshold",
  "labels",
  "missCost",
  "falseAlarmCost",
  "decoding",
  "bias",
  "tokens",
  "guaranteed",
];

/**
 * The weights of the features and the chain of one pass. A model has one or two passes. With two
 * passes, the first one predicts labels that are used as features in the second one. See
 * `FirstPass` in ml/first_pass.py.
 */
class Pass {
  /**
   * @param {any} data The pass in the header of the model file. See `_describe_pass` in
   *   export/model.py.
   * @param {Record<string, any>} arrays The arrays of the model file. The array names of the pass
   *   start with its name, e.g. "pass0.weights".
   * @param {Features} features
   */
  constructor(data, arrays, features) {
    const { name } = data;
    /** @type {Tags} */
    this.tags = data.tags;
    this.nTags = data.tags.label_of.length;
    const weights = floatsOf(arrays[`${name}.weights`], data.exponent);
    // The file contains each distinct row of weights once, because many features have the same
    // row. `rowIds` contains the row of each feature, or -1 for features without weights, which are
    // not in `used_rows`.
    const rowIds = new Int32Array(features.nRows).fill(-1);
    const usedRows = arrays[`${name}.used_rows`];
    const idsOfUsedRows = arrays[`${name}.row_ids`];
    for (let i = 0; i < usedRows.length; i++) {
      rowIds[usedRows[i]] = idsOfUsedRows[i];
    }
    this.emissions = new Emissions(features, rowIds, weights, this.nTags);

    // The rows of the chain: the transitions from each tag, followed by start and end.
    const rows = floatsOf(arrays[`${name}.chain`], data.chain_exponent);
    const nTransitions = this.nTags ** 2;
    const chain = new ChainScores(
      rows.subarray(0, nTransitions),
      rows.subarray(nTransitions, nTransitions + this.nTags),
      rows.subarray(nTransitions + this.nTags),
    );
    this.chain = chain.constrain(this.tags);
  }

  /**
   * Returns the emissions of a text without the weights of labels predicted by the first pass,
   * which are added by `Recognizer.addLabels`.
   * @param {Doc} doc
   * @param {IdsOfTokens[]} idsInDoc The ids in the columns that depend on the text. See
   *   `Features.findInDoc`.
   * @returns {Float64Array} Shape: (N, K)
   */
  score(doc, idsInDoc) {
    const emissions = this.emissions.scoreWords(doc);
    this.emissions.addValues(emissions, this.emissions.features.docColumns, idsInDoc);
    return emissions;
  }
}

/** The model of a pipeline. */
export class Recognizer {
  /**
   * @param {Model} model The contents of the model file. The header is created by `make_web_model`
   *   in export/model.py.
   * @param {(text: string) => Token[]} tokenize
   * @throws {Error} If the model contains unknown features or too many features.
   */
  constructor({ header, arrays }, tokenize) {
    this.tokenize = tokenize;
    this.info = header.info;
    this.promise = header.promise;
    this.cutsAtLines = header.cuts_at_lines;
    // The tags of labels that were added after training. They are never predicted.
    this.impossibleTags = header.impossible_tags;
    // Labels of the model that the component doesn't predict.
    this.hiddenLabels = new Set(header.hidden_labels);
    /** @type {Decoding} */
    this.decoding = { ...header.decoding };
    if (this.decoding.choices !== undefined) {
      this.decoding.choices = withArrays(this.decoding.choices, arrays);
    }
    const columns = header.columns.map((/** @type {any} */ column) => withArrays(column, arrays));
    this.features = new Features(columns, header.symbols);
    const passes = header.passes.map((/** @type {any} */ data) =>
      new Pass(data, arrays, this.features),
    );
    /** @type {Pass} */
    this.pass = passes.at(-1);
    /** @type {Pass | null} */
    this.firstPass = passes.length > 1 ? passes[0] : null;
    this.temperature = new Temperature(header.temperature, this.pass.tags, this.pass.chain);
  }

  /**
   * The labels that can be predicted. For minimum-expected-cost decoding with a label tree, this
   * includes the nodes above them.
   */
  get labels() {
    return this.labelsOf(this.decoding).filter((label) => !this.hiddenLabels.has(label));
  }

  /**
   * Returns the label names of decoded entities, indexed by `label`.
   * @param {Decoding} decoding
   * @returns {string[]}
   */
  labelsOf(decoding) {
    // The nodes of a label tree follow the labels of the chain.
    return decoding.choices?.tags.labels ?? this.pass.tags.labels;
  }

  /**
   * Returns the posterior of a text, which can be decoded several times.
   * @param {string} text
   * @param {Token[]} [tokens] The tokens of the text. Defaults to the tokenizer's tokens.
   * @returns {Posterior}
   * @throws {TypeError} If the text isn't a string.
   */
  posterior(text, tokens) {
    if (typeof text !== "string") {
      throw typeError("text", "a string", text);
    }
    tokens ??= this.tokenize(text);
    const doc = this.features.read(text, tokens.map((token) => token.text));
    const bounds = this.findBounds(doc);
    const idsInDoc = this.features.findInDoc(doc);
    const emissions = this.pass.score(doc, idsInDoc);
    this.addLabels(emissions, doc, bounds, idsInDoc);

    const { nTags } = this.pass;
    const isSpace = doc.words.map((word) => word.isSpace);
    isSpace.forEach((isTokenSpace, token) => {
      // Whitespace can't have tags used only for the first or last token of an entity.
      const impossibleForSpace = isTokenSpace ? this.pass.tags.at_border : [];
      for (const tag of [...impossibleForSpace, ...this.impossibleTags]) {
        emissions[token * nTags + tag] = -Infinity;
      }
    });
    const scores = { emissions, chain: this.pass.chain, bounds };
    return new Posterior(text, tokens, scores, this.pass.tags, this.temperature, isSpace);
  }

  /**
   * Returns the bounds of sequences. If `cutsAtLines` is set, the chain is split after whitespace
   * with a line break.
   * @param {Doc} doc
   * @returns {number[]} The first token of each sequence, followed by the number of tokens.
   */
  findBounds({ words }) {
    const bounds = [0];
    for (let token = 1; token < words.length; token++) {
      const { isSpace, hasBreak } = words[token - 1];
      if (this.cutsAtLines && isSpace && hasBreak) {
        bounds.push(token);
      }
    }
    bounds.push(words.length);
    return bounds;
  }

  /**
   * Adds the weights of label features to emissions in place. The features are the labels that the
   * first pass predicts for the other occurrences of a word. If there is no first pass, nothing is
   * added.
   * @param {Float64Array} emissions Shape: (N, K)
   * @param {Doc} doc
   * @param {number[]} bounds See `findBounds`.
   * @param {IdsOfTokens[]} idsInDoc The ids in the columns that depend on the text.
   */
  addLabels(emissions, doc, bounds, idsInDoc) {
    if (this.firstPass === null) {
      return;
    }
    const groups = this.features.groupTokens(doc);
    if (groups.every((groupsOfColumn) => groupsOfColumn.length === 0)) {
      return; // no word occurs several times
    }
    const { nTags, tags } = this.firstPass;
    const emissionsOfFirst = this.firstPass.score(doc, idsInDoc);
    const scores = { emissions: emissionsOfFirst, chain: this.firstPass.chain, bounds };
    const marginals = new ForwardBackward(scores).marginals();

    // The probabilities of O and each label are the sums over their tags. The first column is O,
    // which has label -1. Shape: (N, labels + 1)
    const nColumns = tags.labels.length + 1;
    const probabilities = new Float64Array(doc.words.length * nColumns);
    for (let i = 0; i < marginals.length; i++) {
      const token = Math.floor(i / nTags);
      const column = tags.label_of[i % nTags] + 1;
      probabilities[token * nColumns + column] += marginals[i];
    }
    const ids = this.features.findLabels(groups, probabilities, ["O", ...tags.labels]);
    this.pass.emissions.addValues(emissions, this.features.labelColumns, ids);
  }

  /**
   * Predicts the entities of a text from its posterior.
   * @param {Posterior} posterior A posterior returned by this recognizer.
   * @param {Options} [options]
   * @returns {Result}
   * @throws {TypeError} If `posterior` is not such a posterior or `options` isn't an object.
   * @throws {Error} If an option is unknown, out of range or not compatible with the pipeline or
   *   another option, or if the guaranteed set is requested for a pipeline without a guarantee.
   */
  decode(posterior, options = {}) {
    if (posterior?.tags !== this.pass.tags) {
      throw typeError("posterior", "what `posterior` of this model returns", posterior);
    }
    const decoding = chooseDecoding(options, this.decoding, this.pass.tags.labels);
    /** @type {Result} */
    const result = this.predict(posterior, decoding).map((entity) => toResult(entity, posterior));
    if (options.tokens) {
      result.tokens = posterior.tokens;
    }
    if (options.guaranteed) {
      if (this.promise === null) {
        throw new Error("guaranteed: expected a pipeline with a guarantee, got one without");
      }
      // The guarantee is based on the pipeline's decoding, regardless of the options.
      const predicted = this.predict(posterior, this.decoding);
      const labels = this.labelsOf(this.decoding);
      result.guaranteed = guaranteedSet(posterior, this.promise, predicted)
        .map((span) => ({ ...span, name: labels[span.label] }))
        .filter(({ name }) => !this.hiddenLabels.has(name))
        .map((span) => toResult(span, posterior));
    }
    return result;
  }

  /**
   * Predicts entities with their label names and probabilities, without entities of hidden labels.
   * @param {Posterior} posterior
   * @param {Decoding} decoding
   */
  predict(posterior, decoding) {
    const labels = this.labelsOf(decoding);
    const entities = decode(posterior, decoding);
    return trim(entities, posterior.isSpace)
      .map((entity) => ({
        ...entity,
        name: labels[entity.label],
        prob: posterior.entityProbability(entity, decoding.choices?.covers),
      }))
      .filter(({ name }) => !this.hiddenLabels.has(name));
  }
}

/**
 * Converts token indices of an entity to character offsets.
 * @param {{begin: number, end: number, name: string, prob: number}} entity
 * @param {Posterior} posterior
 * @returns {PredictedEntity}
 */
function toResult({ begin, end, name, prob }, { tokens }) {
  return { start: tokens[begin].start, end: tokens[end - 1].end, label: name, score: prob };
}

/**
 * Returns the decoding selected by the options, or the pipeline's decoding by default.
 * @param {Options} options
 * @param {Decoding} pipelineDecoding
 * @param {string[]} modelLabels
 * @returns {Decoding}
 * @throws {TypeError} If `options` or `labels` isn't an object, or an option is null.
 * @throws {Error} If an option is unknown, out of range or not compatible with the pipeline or
 *   another option.
 */
function chooseDecoding(options, pipelineDecoding, modelLabels) {
  checkObject("options", options);
  for (const [name, value] of Object.entries(options)) {
    if (!OPTIONS.includes(name)) {
      throw new Error(`${name}: expected one of the options ${OPTIONS.join(", ")}`);
    }
    if (value === null) {
      throw typeError(name, "a value, or undefined if it is left out", value);
    }
  }
  const { threshold, labels, bias, missCost, falseAlarmCost } = options;
  if (labels !== undefined) {
    checkObject("labels", labels);
  }
  const hasCost = missCost !== undefined || falseAlarmCost !== undefined;
  if (threshold !== undefined && hasCost) {
    throw new Error("threshold: expected either a threshold or costs, got both");
  }
  const hasThreshold = threshold !== undefined || hasCost;
  const kind = options.decoding ?? (hasThreshold ? "threshold" : pipelineDecoding.kind);
  const isSet = hasThreshold || labels !== undefined || bias !== undefined;
  if (kind === pipelineDecoding.kind && !isSet) {
    return pipelineDecoding;
  }

  for (const label of Object.keys(labels ?? {})) {
    if (!modelLabels.includes(label)) {
      const expected = modelLabels.join(", ");
      throw new Error(`labels: expected labels of the model, ${expected}, got ${label}`);
    }
    const [least, most] = kind === "threshold" ? [0, 1] : [-Infinity, Infinity];
    checkNumber(`labels.${label}`, labels?.[label], least, most);
  }
  if (kind === "threshold") {
    if (bias !== undefined) {
      throw new Error("bias: expected the decoding viterbi with a bias, got threshold");
    }
    let value = threshold ?? pipelineDecoding.threshold ?? 0.5;
    if (hasCost) {
      value = thresholdOfCosts(missCost, falseAlarmCost);
    }
    return { kind, threshold: checkNumber("threshold", value, 0, 1), labels };
  }
  if (kind === "viterbi") {
    if (hasThreshold) {
      throw new Error("decoding: expected threshold with a threshold or costs, got viterbi");
    }
    const value = bias ?? pipelineDecoding.bias ?? 0;
    return { kind, bias: checkNumber("bias", value, -Infinity, Infinity), labels };
  }
  if (kind === "min-cost") {
    if (pipelineDecoding.kind !== kind || isSet) {
      throw new Error("decoding: min-cost is for pipelines that decode by cost, with their costs");
    }
    return pipelineDecoding;
  }
  throw new Error(`decoding: expected viterbi, threshold or min-cost, got ${kind}`);
}

/**
 * Returns the threshold with the lowest expected cost, assuming calibrated probabilities.
 * @param {number} missCost
 * @param {number} falseAlarmCost
 * @returns {number}
 * @throws {Error} If a cost is negative or not finite, or if both are 0.
 */
function thresholdOfCosts(missCost = 1, falseAlarmCost = 1) {
  checkNumber("missCost", missCost, 0, Infinity);
  checkNumber("falseAlarmCost", falseAlarmCost, 0, Infinity);
  if (missCost + falseAlarmCost === 0) {
    throw new Error("missCost, falseAlarmCost: expected one above 0");
  }
  return falseAlarmCost / (falseAlarmCost + missCost);
}

/**
 * Checks that a value is a finite number within a range, and returns it.
 * @param {string} name The name of the option in error messages.
 * @param {unknown} value
 * @param {number} least
 * @param {number} most
 * @returns {number}
 * @throws {Error} If the value is invalid.
 */
function checkNumber(name, value, least, most) {
  if (typeof value !== "number" || !Number.isFinite(value) || value < least || value > most) {
    let range = "";
    if (Number.isFinite(most)) {
      range = ` from ${least} to ${most}`;
    } else if (Number.isFinite(least)) {
      range = ` of at least ${least}`;
    }
    throw new Error(`${name}: expected a finite number${range}, got ${describe(value)}`);
  }
  return value;
}

/**
 * Converts integers to weights: weight = number * 2^exponent.
 * @param {Int16Array} numbers
 * @param {number} exponent
 * @returns {Float64Array}
 */
function floatsOf(numbers, exponent) {
  const floats = new Float64Array(numbers);
  const factor = 2 ** exponent;
  for (let i = 0; i < floats.length; i++) {
    floats[i] *= factor;
  }
  return floats;
}

/**
 * Returns a copy of a header object with the arrays that are named under "arrays". For example, for
 * `{arrays: {keys: "memory.keys"}}`, `keys` is the array "memory.keys" of the file.
 * @param {any} object
 * @param {Record<string, any>} arrays
 * @returns {any}
 */
function withArrays(object, arrays) {
  const filled = { ...object };
  for (const [key, name] of Object.entries(object.arrays ?? {})) {
    filled[key] = arrays[/** @type {string} */ (name)];
  }
  return filled;
}
