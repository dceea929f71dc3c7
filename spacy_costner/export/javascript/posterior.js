/**
 * The posterior of a text: the scores of its paths, and the probabilities derived from them. They
 * are computed lazily and cached, so changing a threshold is cheap.
 */

import { ForwardBackward } from "./chain.js";
import { EntityProbabilities } from "./entities.js";

/** @typedef {import("./chain.js").Entity} Entity */
/** @typedef {import("./chain.js").Potentials} Potentials */
/** @typedef {import("./chain.js").Tags} Tags */
/** @typedef {import("./entities.js").ScoredEntity} ScoredEntity */
/** @typedef {import("./tokenizer.js").Token} Token */

export class Posterior {
  /**
   * @param {string} text
   * @param {Token[]} tokens
   * @param {Potentials} scores The scores of the model with all constraints applied.
   * @param {Tags} tags
   * @param {import("./chain.js").Temperature} temperature
   * @param {boolean[]} isSpace Whether each token is whitespace.
   */
  constructor(text, tokens, scores, tags, temperature, isSpace) {
    this.text = text;
    this.tokens = tokens;
    this.scores = scores;
    this.tags = tags;
    this.temperature = temperature;
    this.isSpace = isSpace;
    /** @type {ForwardBackward | null} */
    this._forwardBackward = null;
    /** @type {EntityProbabilities | null} */
    this._entities = null;
    /**
     * The entities of the last search and their minimum probability.
     * @type {{floor: number, entities: ScoredEntity[]} | null}
     */
    this._likely = null;
  }

  /** The distribution over paths, using the temperature. */
  get forwardBackward() {
    if (this._forwardBackward === null) {
      this._forwardBackward = new ForwardBackward(this.temperature.temper(this.scores));
    }
    return this._forwardBackward;
  }

  /** The probabilities of entities, using the temperature. */
  get entities() {
    if (this._entities === null) {
      this._entities = new EntityProbabilities(this.forwardBackward, this.tags, this.isSpace);
    }
    return this._entities;
  }

  /**
   * Sums the columns of tags with the same meaning. The chain may have several tags for O, which
   * are the same tag in annotations and costs.
   * @param {Float64Array} table A number for each token and tag. Shape: (N, K)
   * @returns {Float64Array} Shape: (N, number of tags with a single O)
   */
  collapse(table) {
    const { collapsed_of: collapsedOf } = this.tags;
    const nCollapsed = Math.max(...collapsedOf) + 1;
    const collapsed = new Float64Array(this.tokens.length * nCollapsed);
    for (let i = 0; i < table.length; i++) {
      const token = Math.floor(i / collapsedOf.length);
      collapsed[token * nCollapsed + collapsedOf[i % collapsedOf.length]] += table[i];
    }
    return collapsed;
  }

  /**
   * Returns the probability of an entity.
   * @param {Entity} entity An entity that begins and ends with a word.
   * @param {number[][]} [covers] The chain labels covered by each label or node of the label tree,
   *   for minimum-expected-cost decoding. Their probabilities are summed. A label covers itself.
   * @returns {number}
   */
  entityProbability(entity, covers) {
    const labels = covers === undefined ? [entity.label] : covers[entity.label];
    const probs = labels.map((label) => this.entities.probability({ ...entity, label }));
    return Math.min(1, probs.reduce((sum, prob) => sum + prob, 0));
  }

  /**
   * Returns all entities with at least the given probability, sorted by begin and end. They may
   * overlap. The result is cached and reused unless the next floor is lower.
   * @param {number} floor The minimum probability.
   * @returns {ScoredEntity[]}
   */
  likelyEntities(floor) {
    if (this._likely === null || floor < this._likely.floor) {
      this._likely = { floor, entities: this.entities.likely(floor) };
    }
    return this._likely.entities.filter(({ prob }) => prob >= floor);
  }
}
