/**
 * The guaranteed set: the spans that fulfil the pipeline's guarantee about misses or false alarms.
 * See `guarantee_scores` and `guaranteed_set` in `pipeline/guaranteed_sets.py`.
 */

import { valuesOfLabels } from "./decoding.js";

/** @typedef {import("./entities.js").ScoredEntity} ScoredEntity */
/** @typedef {import("./posterior.js").Posterior} Posterior */

/**
 * What is guaranteed: see `Terms` in pipeline/promises.py.
 * @typedef {Object} Terms
 * @property {number | null} miss The highest share of entities that are not in the set.
 * @property {number | null} false_alarm Instead of it, the highest share of the set that is wrong.
 * @property {number | null} confidence The probability that the guarantee holds; null: on average.
 * @property {string} found When an entity counts as found. "exact": it is in the set. "covered":
 *   each of its tokens is in a span of the set.
 * @property {string} by What the limit of misses is about. "doc": the mean share of the entities
 *   of a doc that are missed. "any": the share of docs in which any entity is missed.
 * @property {boolean} per_label Whether there is a guarantee for each label.
 * @property {number} threshold The least score of spans: see `scoreSpans`.
 * @property {Record<string, number>} labels The least score of labels that have their own.
 */

/** The least probability of spans that may be in the set. */
const FINEST = 0.001;

/** The share of an extent's probability (see `joinLabels`) that is divided equally among labels. */
const SMOOTHING = 0.05;

/**
 * Returns the spans of the guaranteed set, ordered by begin and end. They may overlap.
 * @param {Posterior} posterior
 * @param {Terms} promise
 * @param {ScoredEntity[]} predicted The entities that the pipeline predicts by its own decoding.
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

  // A larger set never misses more, so the predicted entities can be added to it.
  const keyOf = (/** @type {ScoredEntity} */ span) => `${span.begin} ${span.end} ${span.label}`;
  const keys = new Set(predicted.map(keyOf));
  const others = chosen.filter((span) => !keys.has(keyOf(span)));
  return [...predicted, ...others].sort((a, b) => a.begin - b.begin || a.end - b.end);
}

/**
 * Returns the spans that may be in the set, with their scores. A span is in the set if its score is
 * at least the threshold.
 *
 *     p(b, e, l)                                                     if false alarms are limited
 *     ((1 - S) p(b, e, l) + S mean_k p(b, e, k)) / sqrt(max(1, n))   if misses are, by label
 *     sum_k p(b, e, k) / sqrt(max(1, n))                             if misses are, of any label
 *
 * The limit is by label if each label has a guarantee, or an entity counts as found only with its
 * label. In the last case only the most probable label l has this score. S is `SMOOTHING`. n is the
 * expected number of entities in the text, or of entities with the label if each label has a
 * guarantee. If the miss rate is not by doc, n is left out.
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

  // n for each label. It is the same for all if there is one guarantee for all labels.
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
      // `FINEST` limits probabilities. Scores are lower, as they are divided by a square root,
      // which is 10 for 100 expected entities.
      if (score >= FINEST / 10) {
        scored.push({ begin, end, label, score });
      }
    }
  }
  return scored;
}

/**
 * Joins spans to extents: stretches of tokens that may be entities, with any label.
 * @param {ScoredEntity[]} spans Ordered by begin and end.
 * @param {number} nLabels
 * @returns {{begin: number, end: number, probs: Float64Array, total: number}[]} The extents, with
 *   the probability of each label, and of any.
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
