/**
 * Minimum-expected-cost decoding. See `decoding/min_cost.py`.
 *
 *     argmin_a sum_t sum_k p(y_t = k) cost[k, a_t]
 *
 * With a label tree, a node above several labels can be predicted. K is the number of annotation
 * tags, which have a single O. A is the number of tags that can be predicted: the annotation tags,
 * followed by the tags of nodes.
 *
 * Ties are broken in favor of the path with the fewest nodes, and then of the most probable path.
 * Two tags of a token are tied if their expected costs, including the best continuations, differ by
 * at most `TIE` times the largest cost.
 */

import { ChainScores, followBack, sequencesOf } from "./chain.js";

/** @typedef {import("./chain.js").Potentials} Potentials */
/** @typedef {import("./posterior.js").Posterior} Posterior */

/**
 * The labels and tags that can be predicted.
 * @typedef {Object} Choices
 * @property {import("./chain.js").Tags} tags All A tags, for labels and nodes.
 * @property {number[][]} covers The chain labels covered by each label or node.
 * @property {number[][]} members The annotation tags covered by each node tag.
 * @property {Float64Array} costs The cost of each mistake, [gold, predicted]. Shape: (K, A)
 */

/** The tolerance for tied expected costs per token, relative to the largest cost. */
const TIE = 1e-6;

/** The minimum probability of a tag when breaking ties, so that its logarithm is finite. */
const LEAST_LIKELY = 1e-30;

/**
 * Returns the path with the lowest expected cost.
 * @param {Posterior} posterior
 * @param {Choices} choices
 * @returns {Int32Array} The tag of each token. Shape: (N,)
 */
export function leastCostPath(posterior, choices) {
  const { bounds } = posterior.scores;
  const nAll = choices.tags.label_of.length; // A
  const nChain = nAll - choices.members.length; // K
  const marginals = posterior.collapse(posterior.forwardBackward.marginals());
  // The number of possible chain tags that correspond to each annotation tag. Shape: (N, K)
  const nPossible = posterior.collapse(
    posterior.scores.emissions.map((score) => (score > -Infinity ? 1 : 0)),
  );
  const nTokens = marginals.length / nChain;

  const emissions = new Float64Array(nTokens * nAll);
  const logProbs = new Float64Array(nTokens * nAll);
  // Make a single node less probable than any path of labels through the longest sequence, so that
  // it never wins a tie.
  let longest = 0;
  for (const [first, past] of sequencesOf(bounds)) {
    longest = Math.max(longest, past - first);
  }
  const nodePenalty = Math.log(LEAST_LIKELY) * (longest + 1);
  for (let token = 0; token < nTokens; token++) {
    const probs = marginals.subarray(token * nChain, (token + 1) * nChain);
    for (let tag = 0; tag < nAll; tag++) {
      const members = tag < nChain ? [tag] : choices.members[tag - nChain];
      let expectedCost = 0;
      for (let gold = 0; gold < nChain; gold++) {
        expectedCost += probs[gold] * choices.costs[gold * nAll + tag];
      }
      const isPossible = members.some((member) => nPossible[token * nChain + member] > 0);
      emissions[token * nAll + tag] = isPossible ? -expectedCost : -Infinity;
      const prob = members.reduce((sum, member) => sum + probs[member], 0);
      const penalty = tag < nChain ? 0 : nodePenalty;
      logProbs[token * nAll + tag] = Math.log(Math.max(prob, LEAST_LIKELY)) + penalty;
    }
  }

  const noScores = new Float64Array(nAll);
  const chain = new ChainScores(new Float64Array(nAll * nAll), noScores, noScores);
  const scores = { emissions, chain: chain.constrain(choices.tags), bounds };
  const largestCost = choices.costs.reduce((a, b) => Math.max(a, b), 0);
  return bestOfTied(scores, logProbs, TIE * largestCost);
}

/**
 * Returns the most probable path among all paths in which the regret of each tag is within a
 * tolerance. See `best_of_tied` in chain/queries.py. gamma_t[i] is the score of the best
 * continuation after tag i at token t.
 *
 *     gamma_{t-1}[i] = max_j (M[i, j] + E[t, j] + gamma_t[j])
 *     argmax_y sum_t log p_t[y_t]
 *     where  M[y_{t-1}, y_t] + E[t, y_t] + gamma_t[y_t] >= gamma_{t-1}[y_{t-1}] - tolerance
 *
 * @param {Potentials} scores
 * @param {Float64Array} logProbs log p of each tag at each token. Shape: (N, A)
 * @param {number} tolerance The maximum difference from the score of the best continuation.
 * @returns {Int32Array} Shape: (N,)
 */
function bestOfTied({ emissions, chain, bounds }, logProbs, tolerance) {
  const { nTags, transitions, start, end } = chain;
  const path = new Int32Array(emissions.length / nTags);
  const tagBefore = new Int32Array(emissions.length);
  // E + gamma of each tag at each token, plus start at the first token of a sequence and end at the
  // last token. Shape: (N, A)
  const ahead = new Float64Array(emissions.length);
  for (const [first, past] of sequencesOf(bounds)) {
    for (let j = 0; j < nTags; j++) {
      ahead[(past - 1) * nTags + j] = emissions[(past - 1) * nTags + j] + end[j];
    }
    for (let token = past - 2; token >= first; token--) {
      const row = token * nTags;
      for (let i = 0; i < nTags; i++) {
        ahead[row + i] = emissions[row + i] + bestAfter(i, row + nTags);
      }
    }
    for (let j = 0; j < nTags; j++) {
      ahead[first * nTags + j] += start[j];
    }

    // Viterbi recursion over log-probabilities, using only the transitions within the tolerance.
    const firstRow = ahead.subarray(first * nTags, (first + 1) * nTags);
    const leastFirst = Math.max(...firstRow) - tolerance;
    let sums = new Float64Array(nTags);
    for (let j = 0; j < nTags; j++) {
      sums[j] = firstRow[j] < leastFirst ? -Infinity : logProbs[first * nTags + j];
    }
    for (let token = first + 1; token < past; token++) {
      const row = token * nTags;
      const sumsBefore = sums;
      sums = new Float64Array(nTags).fill(-Infinity);
      for (let i = 0; i < nTags; i++) {
        const least = bestAfter(i, row) - tolerance;
        for (let j = 0; j < nTags; j++) {
          const score = transitions[i * nTags + j] + ahead[row + j];
          if (sumsBefore[i] > sums[j] && score >= least) {
            sums[j] = sumsBefore[i];
            tagBefore[row + j] = i;
          }
        }
      }
      for (let j = 0; j < nTags; j++) {
        sums[j] += logProbs[row + j];
      }
    }
    const lastTag = sums.indexOf(Math.max(...sums));
    followBack(tagBefore, first, past, lastTag, path);
  }
  return path;

  /**
   * Returns gamma for a tag, i.e. the score of the best continuation after it.
   * @param {number} from The tag.
   * @param {number} nextRow The index of the next token's scores.
   * @returns {number}
   */
  function bestAfter(from, nextRow) {
    let best = -Infinity;
    for (let j = 0; j < nTags; j++) {
      best = Math.max(best, transitions[from * nTags + j] + ahead[nextRow + j]);
    }
    return best;
  }
}
