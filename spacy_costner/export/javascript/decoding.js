/**
 * Decoding: which entities are predicted, from the posterior of a text. See `decoding/`.
 *
 * By the best path, with a bias for all tags but O; by the probability of entities, with a
 * threshold; or by the expected cost of the tags of tokens.
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
 * @property {number} [bias] For the best path: what is added to the scores of all tags but O.
 * @property {number} [threshold] The least probability of entities.
 * @property {Record<string, number>} [labels] Bias or threshold of single labels.
 * @property {import("./min_cost.js").Choices} [choices] For decoding by cost, and only there:
 *   what can be predicted.
 */

/** The least probability of entities that are searched for: `LEAST_PROB` in posterior.py. */
const LEAST = 0.01;

/**
 * Returns the predicted entities of a text, in order and without overlap. They may begin or end
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
 * Returns the entities with at least the threshold as probability. If some of them overlap, it
 * chooses the set with the lowest expected cost, if a false alarm costs the threshold and a miss 1
 * minus the threshold.
 *
 *     argmax sum_e (p(e) - threshold[label(e)]),  over sets of entities without overlap
 *
 * Entities with a probability below `LEAST` are never found.
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
 * Returns the entities of the tags with the lowest expected cost.
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
 * Chooses entities without overlap and with the largest gain (weighted interval scheduling), in
 * order. Entities with a negative gain are never chosen.
 *
 *     best_i = max(best_{i-1}, gain_i + best of the entities that end before i begins)
 *
 * Here entities are in the order of their ends, and best_i is the largest gain among the first i.
 *
 * @template {Entity} E
 * @param {E[]} entities Ordered by begin and end.
 * @param {number[]} gains The gain of each.
 * @returns {E[]}
 */
export function withoutOverlap(entities, gains) {
  const candidates = entities
    .map((entity, i) => ({ entity, gain: gains[i] }))
    .filter(({ gain }) => gain >= 0)
    .sort((a, b) => a.entity.end - b.entity.end);
  const ends = candidates.map(({ entity }) => entity.end);

  // Item i of `bestGains` is the gain of the best choice among the first i candidates. Item i of
  // `isInBest` is whether the best choice among the first i + 1 has the last of them.
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

  // From the last candidate back: if it is in the best choice, candidates that overlap with it
  // aren't.
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
 * Returns how many numbers of an ascending list are at most some number.
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
 * Returns the value of a setting for each label: its own, or else the overall one.
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
