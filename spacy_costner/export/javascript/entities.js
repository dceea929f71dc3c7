/**
 * Entities in paths, and their probabilities.
 *
 * An entity with label x begins with an opening tag of x, continues with transitions inside x, and
 * ends after a closing tag that is followed by any other transition. Using the messages of
 * chain.js,
 *
 *     a_b[k] = log alpha_b[k]                                            if k opens an entity of x
 *     a_t[j] = E[t, j] + log sum_{(i, j) inside x} exp(a_{t-1}[i] + M[i, j])
 *
 * sums over all paths with an entity that begins at b and contains t. With
 *
 *     leave_t[i] = log sum_{(i, j) not inside x} exp(M[i, j] + E[t+1, j]) beta_{t+1}[j]
 *
 * and leave_T = log beta_T, the probability that the entity contains t, and the probability that t
 * is its last token, are
 *
 *     reach(b, t) = sum_k exp(a_t[k] + log beta_t[k] - log Z)
 *     p(b, t)     = sum_{k closes} exp(a_t[k] + leave_t[k] - log Z)
 *
 * Whitespace can't be the last token of an entity. If an entity's tags continue into the whitespace
 * after it, these probabilities p(b, t) are added to the probability of its last word. reach(b, t)
 * never increases with t, and entities that share a token are mutually exclusive. This limits the
 * search for all entities above a given probability.
 */

import { ForwardBackward, logSum, sequencesOf } from "./chain.js";

/** @typedef {import("./chain.js").Entity} Entity */
/** @typedef {import("./chain.js").Tags} Tags */

/**
 * An entity with its probability.
 * @typedef {{begin: number, end: number, label: number, prob: number}} ScoredEntity
 */

/**
 * The tags of a label. The other properties contain indices in `tags`.
 * @typedef {Object} LabelTags
 * @property {number[]} tags
 * @property {number[]} opening The tags that begin an entity.
 * @property {number[]} closing The tags that may end an entity.
 * @property {[number, number][]} inside The transitions within an entity, [from, to].
 */

/**
 * Returns the entities of a path. They may begin or end with whitespace.
 * @param {ArrayLike<number>} path The tag of each token.
 * @param {Tags} tags
 * @param {number[]} bounds The first token of each sequence, followed by the number of tokens.
 * @returns {Entity[]}
 */
export function decodePath(path, tags, bounds) {
  const opening = new Set(tags.opening);
  const continuing = new Set(tags.continuing);
  const entities = [];
  for (const [first, past] of sequencesOf(bounds)) {
    for (let begin = first; begin < past; begin++) {
      if (!opening.has(path[begin])) {
        continue;
      }
      let end = begin + 1;
      while (end < past && continuing.has(path[end])) {
        end += 1;
      }
      entities.push({ begin, end, label: tags.label_of[path[begin]] });
    }
  }
  return entities;
}

/**
 * Strips whitespace tokens from both ends of entities and drops whitespace-only entities.
 * @param {Entity[]} entities
 * @param {boolean[]} isSpace Whether each token is whitespace.
 * @returns {Entity[]}
 */
export function trim(entities, isSpace) {
  const trimmed = [];
  for (const entity of entities) {
    let { begin, end } = entity;
    while (begin < end && isSpace[begin]) {
      begin += 1;
    }
    while (begin < end && isSpace[end - 1]) {
      end -= 1;
    }
    if (begin < end) {
      trimmed.push({ ...entity, begin, end });
    }
  }
  return trimmed;
}

/** The search uses a slightly lower minimum probability to allow for rounding errors. */
const ALMOST = 0.999;

/** The probabilities of the entities of a text. */
export class EntityProbabilities {
  /**
   * @param {ForwardBackward} forwardBackward
   * @param {Tags} tags
   * @param {boolean[]} isSpace Whether each token is whitespace.
   */
  constructor(forwardBackward, tags, isSpace) {
    this.forwardBackward = forwardBackward;
    this.isSpace = isSpace;
    const nTags = tags.label_of.length;
    /** Whether a transition is within an entity, [from, to], as 0 or 1. Shape: (K, K) */
    this.isInside = new Uint8Array(nTags ** 2);
    for (const [from, to] of tags.inside) {
      this.isInside[from * nTags + to] = 1;
    }
    this.tagsOfLabels = tagsByLabel(tags);
  }

  /**
   * Returns the probability that exactly these tokens are an entity with this label.
   * @param {Entity} entity An entity that begins and ends with a word.
   * @returns {number}
   */
  probability({ begin, end, label }) {
    if (end > this.forwardBackward.past[begin]) {
      return 0; // the entity crosses the end of its sequence
    }
    const walk = new EntityWalk(this, begin, label);
    while (walk.token + 1 < end) {
      walk.advance();
    }
    // Add the probability of paths that continue into the whitespace after the entity.
    let prob = walk.endProbability();
    while (!walk.isLast && this.isSpace[walk.token + 1]) {
      walk.advance();
      prob += walk.endProbability();
    }
    return Math.min(prob, 1);
  }

  /**
   * Returns all entities with at least the given probability, sorted by begin, by end and by
   * descending probability. They may overlap.
   * @param {number} floor The minimum probability.
   * @returns {ScoredEntity[]}
   */
  likely(floor) {
    /** @type {ScoredEntity[]} */
    const entities = [];
    for (let begin = 0; begin < this.forwardBackward.nTokens; begin++) {
      if (this.isSpace[begin]) {
        continue;
      }
      const nBefore = entities.length;
      for (let label = 0; label < this.tagsOfLabels.length; label++) {
        // At most tokens, no entity is likely to begin.
        if (this.beginProbability(begin, label) >= ALMOST * floor) {
          this.addEnds(begin, label, floor, entities);
        }
      }
      if (entities.length > nBefore + 1) {
        // The entities were added label by label, so sort them.
        const beginningHere = entities.splice(nBefore);
        beginningHere.sort((a, b) => a.end - b.end || b.prob - a.prob);
        entities.push(...beginningHere);
      }
    }
    return entities;
  }

  /**
   * Returns the probability that an entity of a label begins at a token.
   * @param {number} token
   * @param {number} label
   * @returns {number}
   */
  beginProbability(token, label) {
    const { tags, opening } = this.tagsOfLabels[label];
    let sum = 0;
    for (const index of opening) {
      sum += this.forwardBackward.marginal(token, tags[index]);
    }
    return sum;
  }

  /**
   * Adds all likely entities of a label that begin at a token.
   * @param {number} begin
   * @param {number} label
   * @param {number} floor The minimum probability.
   * @param {ScoredEntity[]} entities The list to extend.
   */
  addEnds(begin, label, floor, entities) {
    // The token after the last word so far, and the probability of the entity that ends there.
    // Whitespace after the word increases it, so the entity is only added at the next word.
    let end = begin;
    let prob = 0;
    const addIfLikely = () => {
      // There is no entity yet at the first word.
      if (end > begin && prob >= floor) {
        entities.push({ begin, end, label, prob: Math.min(prob, 1) });
      }
    };
    const walk = new EntityWalk(this, begin, label);
    for (;;) {
      if (!this.isSpace[walk.token]) {
        addIfLikely();
        if (!(walk.reachProbability() >= ALMOST * floor)) {
          return;
        }
        end = walk.token + 1;
        prob = 0;
      }
      prob += walk.endProbability();
      if (walk.isLast) {
        addIfLikely();
        return;
      }
      walk.advance();
    }
  }
}

/**
 * An entity with a given label and first token that is extended token by token. `sums` contains
 * a_t[k] for each tag k of the label. See the formulas at the top of this file.
 */
class EntityWalk {
  /**
   * @param {EntityProbabilities} owner Provides the messages and the tags.
   * @param {number} begin The first token of the entity.
   * @param {number} label The label of the entity.
   */
  constructor(owner, begin, label) {
    this.owner = owner;
    this.labelTags = owner.tagsOfLabels[label];
    this.token = begin;
    this.sums = new Float64Array(this.labelTags.tags.length).fill(-Infinity);
    for (const index of this.labelTags.opening) {
      const tag = this.labelTags.tags[index];
      this.sums[index] = owner.forwardBackward.logAlpha(begin, tag);
    }
  }

  /** Whether the current token is the last one of its sequence. */
  get isLast() {
    return this.token + 1 === this.owner.forwardBackward.past[this.token];
  }

  /** Moves to the next token, which must be in the same sequence. */
  advance() {
    const { emissions, chain } = this.owner.forwardBackward.potentials;
    const { nTags, transitions } = chain;
    const { tags, inside } = this.labelTags;
    this.token += 1;
    const sums = new Float64Array(tags.length).fill(-Infinity);
    for (const [from, to] of inside) {
      const transition = transitions[tags[from] * nTags + tags[to]];
      const score = transition + emissions[this.token * nTags + tags[to]];
      sums[to] = addLogs(sums[to], this.sums[from] + score);
    }
    this.sums = sums;
  }

  /**
   * Returns reach(b, t), the probability that the entity contains the token.
   * @returns {number}
   */
  reachProbability() {
    const { forwardBackward } = this.owner;
    const { tags } = this.labelTags;
    let sum = 0;
    for (let i = 0; i < tags.length; i++) {
      if (this.sums[i] > -Infinity) {
        const logProb = this.sums[i] + forwardBackward.logBeta(this.token, tags[i]);
        sum += Math.exp(logProb - forwardBackward.logZ[this.token]);
      }
    }
    return sum;
  }

  /**
   * Returns p(b, t), the probability that the token is the last one of the entity.
   * @returns {number}
   */
  endProbability() {
    const { logZ } = this.owner.forwardBackward;
    let sum = 0;
    for (const index of this.labelTags.closing) {
      if (this.sums[index] > -Infinity) {
        const logProb = this.sums[index] + this.logLeave(this.labelTags.tags[index]);
        sum += Math.exp(logProb - logZ[this.token]);
      }
    }
    return sum;
  }

  /**
   * Returns leave_t for a tag. See the formulas at the top of this file.
   * @param {number} from The tag of the token.
   * @returns {number}
   */
  logLeave(from) {
    const { forwardBackward } = this.owner;
    const { nTags, potentials } = forwardBackward;
    if (this.isLast) {
      return forwardBackward.logBeta(this.token, from);
    }
    const next = this.token + 1;
    const scores = new Float64Array(nTags).fill(-Infinity);
    for (let to = 0; to < nTags; to++) {
      const transition = potentials.chain.transitions[from * nTags + to];
      if (transition > -Infinity && !this.owner.isInside[from * nTags + to]) {
        const emission = potentials.emissions[next * nTags + to];
        scores[to] = transition + emission + forwardBackward.logBeta(next, to);
      }
    }
    return logSum(scores);
  }
}

/** Caches the result of `tagsByLabel` for `tags`, which are the same for all texts of a model. */
const cachedTags = new WeakMap();

/**
 * Returns the tags of each label.
 * @param {Tags} tags
 * @returns {LabelTags[]}
 */
function tagsByLabel(tags) {
  let tagsOfLabels = cachedTags.get(tags);
  if (tagsOfLabels === undefined) {
    tagsOfLabels = tags.labels.map((_, label) => tagsOfLabel(tags, label));
    cachedTags.set(tags, tagsOfLabels);
  }
  return tagsOfLabels;
}

/**
 * Returns the tags of a label.
 * @param {Tags} tags
 * @param {number} label
 * @returns {LabelTags}
 */
function tagsOfLabel(tags, label) {
  /** @type {number[]} */
  const ownTags = [];
  tags.label_of.forEach((otherLabel, tag) => {
    if (otherLabel === label) {
      ownTags.push(tag);
    }
  });
  // Drop the tags of other labels, which have no index.
  const indicesOf = (/** @type {number[]} */ allTags) =>
    allTags.map((tag) => ownTags.indexOf(tag)).filter((index) => index >= 0);
  /** @type {[number, number][]} */
  const inside = [];
  for (const [from, to] of tags.inside) {
    if (tags.label_of[from] === label) {
      inside.push([ownTags.indexOf(from), ownTags.indexOf(to)]);
    }
  }
  return {
    tags: ownTags,
    opening: indicesOf(tags.opening),
    closing: indicesOf(tags.closing),
    inside,
  };
}

/**
 * Returns log(exp(a) + exp(b)).
 * @param {number} a
 * @param {number} b
 * @returns {number}
 */
function addLogs(a, b) {
  const larger = Math.max(a, b);
  if (larger === -Infinity) {
    return -Infinity;
  }
  return larger + Math.log1p(Math.exp(Math.min(a, b) - larger));
}
