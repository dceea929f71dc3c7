/** The types of ner.js. */

/**
 * Loads a model file.
 * @param source Its URL, its bytes, or the response of `fetch`.
 * @throws {TypeError} If `source` is none of these.
 * @throws {Error} If it can't be fetched, isn't a model file, is damaged, or has another version.
 */
export function load(
  source: string | URL | ArrayBuffer | Uint8Array | Response,
): Promise<Ner>;

/** Predicts the entities of texts. */
export interface Ner {
  /**
   * Predicts the entities of a text, in order and without overlap.
   * @throws {TypeError} If `text` isn't a string, or `options` isn't an object.
   * @throws {Error} If an option is unknown or out of its range, or doesn't fit the pipeline or
   *   another option.
   */
  (text: string, options?: Options): Result;

  /**
   * Computes the probabilities of a text, from which `decode` predicts entities. Both together are
   * what `ner(text, options)` does. With other options only `decode` is needed, which takes little
   * time.
   * @throws {TypeError} If `text` isn't a string.
   */
  posterior(text: string): Posterior;

  /**
   * Predicts the entities of a text from its posterior.
   * @param posterior What `posterior` of the same model has returned.
   * @throws {TypeError} If `posterior` is another object, or `options` isn't an object.
   * @throws {Error} If an option is unknown or out of its range, or doesn't fit the pipeline or
   *   another option.
   */
  decode(posterior: Posterior, options?: Options): Result;

  /** The labels that it predicts. */
  labels: string[];

  /** What is known of the pipeline. */
  info: Info;
}

/** The options of a prediction. */
export interface Options {
  /** The least probability of entities, from 0 to 1. */
  threshold?: number;

  /**
   * Thresholds or biases of single labels. Other labels have `threshold` or `bias`. If that is left
   * out, it is the pipeline's, or 0.5 or 0 if it has none.
   */
  labels?: Record<string, number>;

  /**
   * What a missed entity costs. With it entities are predicted whose probability is at least
   * falseAlarmCost / (falseAlarmCost + missCost).
   */
  missCost?: number;

  /** What a false alarm costs. If only one of the two costs is given, the other is 1. */
  falseAlarmCost?: number;

  /**
   * How entities are chosen. If left out, by the threshold or the costs, if these are given, or else
   * as the pipeline does.
   */
  decoding?: Decoding;

  /** For the best path, "viterbi": what is added to the scores of all tags but O. */
  bias?: number;

  /** Whether the result has the tokens, too. */
  tokens?: boolean;

  /** Whether the result has the guaranteed set, too. */
  guaranteed?: boolean;
}

/** How entities are chosen: as the parameter `decoding` of `init`. */
export type Decoding = "viterbi" | "threshold" | "min-cost";

/** The entities of a text, with the tokens and the guaranteed set if the options ask for them. */
export type Result = PredictedEntity[] & {
  tokens?: Token[];
  guaranteed?: PredictedEntity[];
};

/** A predicted entity. */
export interface PredictedEntity {
  /** Its first character, in UTF-16 units, as JavaScript counts. */
  start: number;

  /** The character after its last. */
  end: number;

  label: string;

  /** Its probability. */
  score: number;
}

/** A token of spaCy's tokenizer. */
export interface Token {
  text: string;

  /** Its first UTF-16 unit in the text. */
  start: number;

  /** The unit after its last one. */
  end: number;

  /** Whether a space follows, which is not a token. */
  space: boolean;
}

/** The probabilities of a text. */
export interface Posterior {
  text: string;
  tokens: Token[];
}

/** What is known of a pipeline: see `describe_pipeline` in export/model.py. */
export interface Info {
  /** The name in the meta data of the pipeline. */
  name: string;

  /** The code of its language, such as "en". */
  lang: string;

  /** The version of the pipeline. */
  version: string;

  /** The version of spacy_costner that wrote the model file. */
  spacy_costner: string;

  /** The name of the component. */
  component: string;

  labels: string[];

  /** The tagging scheme, such as "BILUO". */
  scheme: string;

  /** How many passes the model has. */
  passes: 1 | 2;

  decoding: Decoding;

  /** The threshold of the pipeline. null if it has another decoding. */
  threshold: number | null;

  /** The bias of the pipeline. null if it has another decoding. */
  bias: number | null;

  /** The thresholds or biases of single labels. */
  thresholds_of_labels: Record<string, number>;

  /** The temperature of all labels. 1 if the pipeline isn't calibrated. */
  temperature: number;

  /** null if the pipeline has no guarantee, or a guarantee for groups of docs. */
  promise: Guarantee | null;
}

/** The guarantee about the guaranteed set: the arguments of `costner guarantee`, and its results. */
export interface Guarantee {
  /** The highest share of entities that are not in the set. null if false alarms are limited. */
  miss: number | null;

  /** The highest share of the set that is wrong. null if misses are limited. */
  false_alarm: number | null;

  /** The probability that the guarantee holds. null if it holds on average over calibration docs. */
  confidence: number | null;

  /** When an entity counts as found: it is in the set, or spans of the set cover its tokens. */
  found: "exact" | "covered";

  /**
   * What the limit is about: the mean share in a doc, or the share of docs in which any entity is
   * missed.
   */
  by: "doc" | "any";

  /** Whether there is a guarantee for each label. */
  per_label: boolean;

  /** The least score of spans in the set. */
  threshold: number;

  /** The least score of labels that have their own. */
  labels: Record<string, number>;

  /** The name of the calibration docs. */
  source: string;

  /** The number of calibration docs. */
  docs: number;

  /** The number of their entities. */
  entities: number;
}
