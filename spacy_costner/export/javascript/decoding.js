/**
 * Decoding: predicts entities based on the posterior of a text. See `decoding/`.
 *
 * There are three kinds: by the best path, with a bias for all tags except O; by the probability of
 * entities, with a threshold; and by the expected cost of the tags of tokens.
 */

import { bestPath } from "./chain.js";
import { decodePath } from "./entities.js";
import { leastCostPath } from "./min_cost.js";

/** @typedef {import("./entities.js").ScoredEntity} ScoredEntity */
/** @typedef {import("./chain.js").Entity} Entity */
/** @typedef {import("./posterior.js").Posterior} Posterior */

/**
 * The settings of a decoding.
 * @typedef {Object} Decoding
 * @property {"viterbi" | "threshold" | "min-cost"} kind
 * @property {number} [bias] A constant added to the scores of all tags except O, for "viterbi".
 * @property {number} [threshold] The minimum probability of entities, for "threshold".
 * @property {Record<string, number>} [labels] The biases or thresholds of individual labels.
 * @property {import("./min_cost.js").Choices} [choices] The labels and tags that can be predicted,
 *   for "min-cost".
 */

/** The minimum probability of entities to find. See `LEAST_PROB` in posterior.py. */
const LEAST = 0.01;

/**
 * Returns the predicted entities of a text, in order and without overlaps. They may begin or end
 * with whitespace, which `trim` removes.
 * @param {Posterior} posterior
 * @param {Decoding} decoding
 * @returns {Entity[]}
 */
export function decode(posterior, decoding) {
  if (decoding.kind === "viterbi") {
    return decodeBestPath(posterior, decoding);
  }
  if (decoding.kind === "threshold") {
    return decodeThreshold(posterior, decoding);
  }
  return decodeLeastCost(posterior, decoding);
}

/**
 * Returns the entities of the best path.
 *
 *     argmax_y s(y) + sum_t bias[label(y_t)]
 *
 * @param {Posterior} posterior
 * @param {Decoding} decoding
 * @returns {Entity[]}
 */
function decodeBestPath(posterior, decoding) {
  const { tags, scores } = posterior;
  const biases = valuesOfLabels(tags.labels, decoding.bias ?? 0, decoding.labels);
  let { emissions } = scores;
  if (biases.some((bias) => bias !== 0)) {
    const biasOfTag = tags.label_of.map((label) => (label < 0 ? 0 : biases[label]));
    emissions = emissions.map((score, i) => score + biasOfTag[i % biasOfTag.length]);
  }
  const path = bestPath({ ...scores, emissions });
  return decodePath(path, tags, scores.bounds);
}

/**
 * Returns the entities with at least the threshold probability. If they overlap, it selects the set
 * with the lowest expected cost, where the cost of a false alarm is the threshold and the cost of a
 * miss is 1 minus the threshold.
 *
 *     argmax sum_e (p(e) - threshold[label(e)]),  over sets of entities without overlap
 *
 * Entities with a probability below `LEAST` are never predicted.
 *
 * @param {Posterior} posterior
 * @param {Decoding} decoding
 * @returns {Entity[]}
 */
function decodeThreshold(posterior, decoding) {
  const { labels } = posterior.tags;
  const thresholds = valuesOfLabels(labels, decoding.threshold ?? 0.5, decoding.labels);
  const lowest = Math.min(1, ...thresholds); // 1 if there are no labels
  const entities = posterior.likelyEntities(Math.max(lowest, LEAST));
  return withoutOverlap(
    entities,
    entities.map(({ prob, label }) => prob - thresholds[label]),
  );
}

/**
 * Returns the entities of the path with the lowest expected cost.
 * @param {Posterior} posterior
 * @param {Decoding} decoding
 * @returns {Entity[]}
 */
function decodeLeastCost(posterior, decoding) {
  if (decoding.choices === undefined) {
    throw new Error("decoding: expected the costs of mistakes for min-cost, the model has none");
  }
  const path = leastCostPath(posterior, decoding.choices);
  return decodePath(path, decoding.choices.tags, posterior.scores.bounds);
}

/**
 * Selects non-overlapping entities with the largest total gain (weighted interval scheduling), in
 * order. Entities with a negative gain are never selected.
 *
 *     best_i = max(best_{i-1}, gain_i + best of the entities that end before i begins)
 *
 * The entities are sorted by their ends, and best_i is the largest total gain of the first i.
 *
 * @template {Entity} E
 * @param {E[]} entities The entities, sorted by begin and end.
 * @param {number[]} gains The gain of each entity.
 * @returns {E[]}
 */
export function withoutOverlap(entities, gains) {
  const candidates = entities
    .map((entity, i) => ({ entity, gain: gains[i] }))
    .filter(({ gain }) => gain >= 0)
    .sort((a, b) => a.entity.end - b.entity.end);
  const ends = candidates.map(({ entity }) => entity.end);

  // `bestGains[i]` is the largest total gain of the first i candidates. `isInBest[i]` is true if
  // candidate i is selected from the first i + 1 candidates.
  const bestGains = [0];
  /** @type {boolean[]} */
  const isInBest = [];
  const nBefore = candidates.map(({ entity }) => countUpTo(ends, entity.begin));
  candidates.forEach(({ gain }, i) => {
    const gainWith = gain + bestGains[nBefore[i]];
    const gainWithout = bestGains[i];
    isInBest.push(gainWith >= gainWithout);
    bestGains.push(Math.max(gainWith, gainWithout));
  });

  // Trace back from the last candidate, skipping candidates that overlap with a selected one.
  const chosen = [];
  let nLeft = candidates.length;
  while (nLeft > 0) {
    const last = nLeft - 1;
    if (isInBest[last]) {
      chosen.push(candidates[last].entity);
      nLeft = nBefore[last];
    } else {
      nLeft = last;
    }
  }
  return chosen.reverse();
}

/**
 * Returns the number of elements in an ascending list that are at most the given number.
 * @param {number[]} ascending
 * @param {number} number
 * @returns {number}
 */
function countUpTo(ascending, number) {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle] <= number) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/**
 * Returns the value of a setting for each label: the label's exception if any, or the overall
 * value.
 * @param {string[]} labels
 * @param {number} overall
 * @param {Record<string, number>} [exceptions]
 * @returns {number[]}
 */
export function valuesOfLabels(labels, overall, exceptions = {}) {
  return labels.map((label) =>
    Object.hasOwn(exceptions, label) ? exceptions[label] : overall,
  );
}
