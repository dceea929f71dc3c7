/**
 * The guaranteed set: the spans that satisfy the pipeline's guarantee on misses or false alarms.
 * See `guarantee_scores` and `guaranteed_set` in `pipeline/guaranteed_sets.py`.
 */

import { valuesOfLabels } from "./decoding.js";

/** @typedef {import("./entities.js").ScoredEntity} ScoredEntity */
/** @typedef {import("./posterior.js").Posterior} Posterior */

/**
 * The terms of the guarantee. See `Terms` in pipeline/promises.py.
 * @typedef {Object} Terms
 * @property {number | null} miss The maximum fraction of entities that are not in the set.
 * @property {number | null} false_alarm The maximum fraction of the set that is wrong, if misses
 *   are not limited.
 * @property {number | null} confidence The probability that the guarantee holds. If null, it holds
 *   on average.
 * @property {string} found When an entity counts as found. "exact": if it is in the set. "covered":
 *   if all of its tokens are in spans of the set.
 * @property {string} by How misses are counted. "doc": the fraction of missed entities per doc,
 *   averaged over docs. "any": the fraction of docs with any missed entity.
 * @property {boolean} per_label Whether there is a separate guarantee for each label.
 * @property {number} threshold The minimum score of spans. See `scoreSpans`.
 * @property {Record<string, number>} labels The minimum scores of individual labels, which override
 *   the threshold.
 */

/** The minimum probability of spans to consider for the set. */
const FINEST = 0.001;

/** The fraction of an extent's probability (see `joinLabels`) divided equally among labels. */
const SMOOTHING = 0.05;

/**
 * Returns the spans of the guaranteed set, sorted by begin and end. They may overlap.
 * @param {Posterior} posterior
 * @param {Terms} promise
 * @param {ScoredEntity[]} predicted The entities predicted by the pipeline's decoding.
 * @returns {ScoredEntity[]}
 */
export function guaranteedSet(posterior, promise, predicted) {
  const thresholds = valuesOfLabels(posterior.tags.labels, promise.threshold, promise.labels);
  const chosen = scoreSpans(posterior, promise)
    .filter(({ score, label }) => score >= thresholds[label])
    .map(({ begin, end, label }) => {
      const prob = posterior.entityProbability({ begin, end, label });
      return { begin, end, label, prob };
    });
  if (promise.miss === null) {
    return chosen;
  }

  // A larger set never has more misses, so the predicted entities can be added.
  const keyOf = (/** @type {ScoredEntity} */ span) => `${span.begin} ${span.end} ${span.label}`;
  const keys = new Set(predicted.map(keyOf));
  const others = chosen.filter((span) => !keys.has(keyOf(span)));
  return [...predicted, ...others].sort((a, b) => a.begin - b.begin || a.end - b.end);
}

/**
 * Returns the candidate spans for the set and their scores. A span is in the set if its score is at
 * least the threshold.
 *
 *     p(b, e, l)                                                     if false alarms are limited
 *     ((1 - S) p(b, e, l) + S mean_k p(b, e, k)) / sqrt(max(1, n))   if misses are, by label
 *     sum_k p(b, e, k) / sqrt(max(1, n))                             if misses are, of any label
 *
 * The limit is by label if there is a guarantee for each label, or if an entity only counts as
 * found with the correct label. Otherwise, only the most probable label l gets the score. S is
 * `SMOOTHING`. n is the expected number of entities in the text, or the expected number of entities
 * with the label if there is a guarantee for each label. If misses are not counted per doc, n is
 * omitted.
 *
 * @param {Posterior} posterior
 * @param {Terms} promise
 * @returns {{begin: number, end: number, label: number, score: number}[]}
 */
function scoreSpans(posterior, promise) {
  const spans = posterior.likelyEntities(FINEST);
  if (promise.miss === null) {
    return spans.map(({ prob, ...span }) => ({ ...span, score: prob }));
  }
  const nLabels = posterior.tags.labels.length;
  const extents = joinLabels(spans, nLabels);

  // n for each label. It is the same for all labels unless there is a guarantee for each label.
  const expected = new Float64Array(nLabels);
  for (const { probs, total } of extents) {
    for (let label = 0; label < nLabels; label++) {
      expected[label] += promise.per_label ? probs[label] : total;
    }
  }
  const divisors = expected.map((number) =>
    promise.by === "doc" ? Math.sqrt(Math.max(number, 1)) : 1,
  );

  const isByLabel = promise.per_label || promise.found === "exact";
  const scored = [];
  for (const { begin, end, probs, total } of extents) {
    const best = probs.indexOf(Math.max(...probs));
    for (let label = 0; label < nLabels; label++) {
      let score = label === best ? total : 0;
      if (isByLabel) {
        score = (1 - SMOOTHING) * probs[label] + (SMOOTHING * total) / nLabels;
      }
      score /= divisors[label];
      // `FINEST` is a limit on probabilities. Scores are lower because they are divided by a square
      // root, e.g. by 10 for 100 expected entities.
      if (score >= FINEST / 10) {
        scored.push({ begin, end, label, score });
      }
    }
  }
  return scored;
}

/**
 * Combines spans with the same tokens and different labels to extents.
 * @param {ScoredEntity[]} spans The spans, sorted by begin and end.
 * @param {number} nLabels
 * @returns {{begin: number, end: number, probs: Float64Array, total: number}[]} The extents, with
 *   the probability of each label and the total probability.
 */
function joinLabels(spans, nLabels) {
  /** @type {{begin: number, end: number, probs: Float64Array, total: number}[]} */
  const extents = [];
  for (const { begin, end, label, prob } of spans) {
    let extent = extents.at(-1);
    if (extent === undefined || extent.begin !== begin || extent.end !== end) {
      extent = { begin, end, probs: new Float64Array(nLabels), total: 0 };
      extents.push(extent);
    }
    extent.probs[label] = prob;
    extent.total += prob;
  }
  return extents;
}
