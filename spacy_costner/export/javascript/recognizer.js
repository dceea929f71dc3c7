/**
 * The recognizer: from a model file and a tokenizer to the entities of texts.
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

/** The options of a prediction: see `Options` in ner.d.ts. */
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
 * The weights of one pass: of its features and of its chain. A model has one pass, or two. Then the
 * first one predicts labels that are features of the second: see `FirstPass` in ml/first_pass.py.
 */
class Pass {
  /**
   * @param {any} data The pass in the header of the model file: see `_describe_pass` in
   *   export/model.py.
   * @param {Record<string, any>} arrays The arrays of the model file. The arrays of the pass are
   *   named after it, such as "pass0.weights".
   * @param {Features} features
   */
  constructor(data, arrays, features) {
    const { name } = data;
    /** @type {Tags} */
    this.tags = data.tags;
    this.nTags = data.tags.label_of.length;
    const weights = floatsOf(arrays[`${name}.weights`], data.exponent);
    // Many features have the same row of weights, which the file has once: `rowIds` has
    // the row of each feature. It is -1 for features that are not in `used_rows`,
    // which have no weights.
    const rowIds = new Int32Array(features.nRows).fill(-1);
    const usedRows = arrays[`${name}.used_rows`];
    const idsOfUsedRows = arrays[`${name}.row_ids`];
    for (let i = 0; i < usedRows.length; i++) {
      rowIds[usedRows[i]] = idsOfUsedRows[i];
    }
    this.emissions = new Emissions(features, rowIds, weights, this.nTags);

    // The rows of the chain: the transitions from each tag, then the start and the end.
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
   * Returns the emissions of a text, without the weights of labels that a first pass predicts:
   * `Recognizer.addLabels` adds these.
   * @param {Doc} doc
   * @param {IdsOfTokens[]} idsInDoc The ids in the columns that depend on the text: see
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
   * @param {Model} model The model file. `make_web_model` in export/model.py makes its
   *   header.
   * @param {(text: string) => Token[]} tokenize
   * @throws {Error} If its features are unknown or too many.
   */
  constructor({ header, arrays }, tokenize) {
    this.tokenize = tokenize;
    this.info = header.info;
    this.promise = header.promise;
    this.cutsAtLines = header.cuts_at_lines;
    // The tags of labels that were added after training: these are never predicted.
    this.impossibleTags = header.impossible_tags;
    // Labels that the model has, but the component doesn't write.
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
   * The labels that the pipeline writes, and the nodes above them if it decodes by cost with a
   * label tree.
   */
  get labels() {
    return this.labelsOf(this.decoding).filter((label) => !this.hiddenLabels.has(label));
  }

  /**
   * Returns the names of the labels of decoded entities, by the numbers in `label`.
   * @param {Decoding} decoding
   * @returns {string[]}
   */
  labelsOf(decoding) {
    // Nodes of a label tree come after the labels of the chain.
    return decoding.choices?.tags.labels ?? this.pass.tags.labels;
  }

  /**
   * Returns the posterior of a text, from which entities can be predicted several times.
   * @param {string} text
   * @param {Token[]} [tokens] Its tokens, instead of the tokens of the tokenizer.
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
      // Whitespace has no tag that only the first or the last token of an entity has.
      const impossibleForSpace = isTokenSpace ? this.pass.tags.at_border : [];
      for (const tag of [...impossibleForSpace, ...this.impossibleTags]) {
        emissions[token * nTags + tag] = -Infinity;
      }
    });
    const scores = { emissions, chain: this.pass.chain, bounds };
    return new Posterior(text, tokens, scores, this.pass.tags, this.temperature, isSpace);
  }

  /**
   * Finds where the chain is cut: after whitespace with a line break, if the pipeline cuts there.
   * @param {Doc} doc
   * @returns {number[]} The first token of each sequence, then the number of tokens.
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
   * Adds the weights of features of labels to emissions, in place. The features are the labels that
   * a first pass predicts for the other occurrences of a word. Without a first pass nothing is
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
      return; // no word occurs again
    }
    const { nTags, tags } = this.firstPass;
    const emissionsOfFirst = this.firstPass.score(doc, idsInDoc);
    const scores = { emissions: emissionsOfFirst, chain: this.firstPass.chain, bounds };
    const marginals = new ForwardBackward(scores).marginals();

    // The probability of O and of each label: the sum over the tags that have it. The first column
    // is O, whose label is -1. Shape: (N, labels + 1)
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
   * @param {Posterior} posterior One that `posterior` of this recognizer has returned.
   * @param {Options} [options]
   * @returns {Result}
   * @throws {TypeError} If the posterior is another object, or the options aren't an object.
   * @throws {Error} If an option is unknown or out of its range, doesn't fit the pipeline or
   *   another option, or requests the guaranteed set of a pipeline without a guarantee.
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
      // The guarantee is about the pipeline's own decoding, with any options.
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
   * Predicts entities with the names of their labels and their probabilities, without entities of
   * hidden labels.
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
 * Returns an entity by its characters.
 * @param {{begin: number, end: number, name: string, prob: number}} entity
 * @param {Posterior} posterior
 * @returns {PredictedEntity}
 */
function toResult({ begin, end, name, prob }, { tokens }) {
  return { start: tokens[begin].start, end: tokens[end - 1].end, label: name, score: prob };
}

/**
 * Returns the decoding that options choose. If they choose none, it is the pipeline's.
 * @param {Options} options
 * @param {Decoding} pipelineDecoding
 * @param {string[]} modelLabels
 * @returns {Decoding}
 * @throws {TypeError} If the options or `labels` aren't an object, or an option is null.
 * @throws {Error} If an option is unknown or out of its range, or doesn't fit the pipeline or
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
 * Returns the threshold with the lowest expected cost, if probabilities are calibrated.
 * @param {number} missCost
 * @param {number} falseAlarmCost
 * @returns {number}
 * @throws {Error} If a cost is negative or not finite, or both are 0.
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
 * Returns a number after a check that it is finite and in a range.
 * @param {string} name The name of the option, for the error.
 * @param {unknown} value
 * @param {number} least
 * @param {number} most
 * @returns {number}
 * @throws {Error} If it isn't.
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
 * Returns weights from whole numbers: weight = number * 2^exponent.
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
 * Returns a copy of an object of the header, with the arrays that it names under "arrays": with
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
