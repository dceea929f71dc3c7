/** The types of ner.js. */

/**
 * Loads a model file.
 * @param source The URL, the bytes, or a response from `fetch`.
 * @throws {TypeError} If `source` has another type.
 * @throws {Error} If the file can't be fetched, isn't a model file, is damaged or has another
 *   version.
 */
export function load(
  source: string | URL | ArrayBuffer | Uint8Array | Response,
): Promise<Ner>;

/** Predicts the entities of texts. */
export interface Ner {
  /**
   * Predicts the entities of a text, in order and without overlaps.
   * @throws {TypeError} If `text` isn't a string or `options` isn't an object.
   * @throws {Error} If an option is unknown, out of range or not compatible with the pipeline or
   *   another option.
   */
  (text: string, options?: Options): Result;

  /**
   * Computes the probabilities of a text, which `decode` uses to predict entities. Calling both is
   * equivalent to `ner(text, options)`. To change the options, only call `decode` again, which is
   * fast.
   * @throws {TypeError} If `text` isn't a string.
   */
  posterior(text: string): Posterior;

  /**
   * Predicts the entities of a text from its posterior.
   * @param posterior The result of `posterior` for the same model.
   * @throws {TypeError} If `posterior` is not such a result or `options` isn't an object.
   * @throws {Error} If an option is unknown, out of range or not compatible with the pipeline or
   *   another option.
   */
  decode(posterior: Posterior, options?: Options): Result;

  /** The labels that can be predicted. */
  labels: string[];

  /** The description of the pipeline. */
  info: Info;
}

/** The options of a prediction. */
export interface Options {
  /** The minimum probability of entities, between 0 and 1. */
  threshold?: number;

  /**
   * Thresholds or biases of individual labels, which override `threshold` or `bias`. The default
   * for other labels is the pipeline's threshold or bias, if any, otherwise 0.5 or 0.
   */
  labels?: Record<string, number>;

  /**
   * The cost of a missed entity. Entities are predicted if their probability is at least
   * falseAlarmCost / (falseAlarmCost + missCost).
   */
  missCost?: number;

  /** The cost of a false alarm. If only one of the two costs is given, the other one is 1. */
  falseAlarmCost?: number;

  /**
   * The decoding. Defaults to "threshold" if a threshold or costs are given, otherwise to the
   * pipeline's decoding.
   */
  decoding?: Decoding;

  /** A constant added to the scores of all tags except O, for "viterbi". */
  bias?: number;

  /** Whether to include the tokens in the result. */
  tokens?: boolean;

  /** Whether to include the guaranteed set in the result. */
  guaranteed?: boolean;
}

/** The kind of decoding, as in the argument `decoding` of `init`. */
export type Decoding = "viterbi" | "threshold" | "min-cost";

/** The entities of a text, with the tokens and the guaranteed set if requested in the options. */
export type Result = PredictedEntity[] & {
  tokens?: Token[];
  guaranteed?: PredictedEntity[];
};

/** A predicted entity. */
export interface PredictedEntity {
  /** The index of the first character, in UTF-16 units. */
  start: number;

  /** The index after the last character. */
  end: number;

  label: string;

  /** The probability of the entity. */
  score: number;
}

/** A token from spaCy's tokenizer. */
export interface Token {
  text: string;

  /** The index of the first UTF-16 unit in the text. */
  start: number;

  /** The index after the last UTF-16 unit. */
  end: number;

  /** Whether the token is followed by a space, which is not a token. */
  space: boolean;
}

/** The probabilities of a text. */
export interface Posterior {
  text: string;
  tokens: Token[];
}

/** The description of a pipeline. See `describe_pipeline` in export/model.py. */
export interface Info {
  /** The name in the pipeline's meta data. */
  name: string;

  /** The language code of the pipeline, e.g. "en". */
  lang: string;

  /** The version of the pipeline. */
  version: string;

  /** The version of spacy_costner that wrote the model file. */
  spacy_costner: string;

  /** The name of the component. */
  component: string;

  labels: string[];

  /** The tagging scheme, e.g. "BILUO". */
  scheme: string;

  /** The number of passes of the model. */
  passes: 1 | 2;

  decoding: Decoding;

  /** The threshold of the pipeline. null if it uses another decoding. */
  threshold: number | null;

  /** The bias of the pipeline. null if it uses another decoding. */
  bias: number | null;

  /** The thresholds or biases of individual labels. */
  thresholds_of_labels: Record<string, number>;

  /** The overall temperature. 1 if the pipeline isn't calibrated. */
  temperature: number;

  /** The guarantee. null if there is no guarantee, or if it depends on groups of docs. */
  promise: Guarantee | null;
}

/** The guarantee of the guaranteed set: the arguments of `costner guarantee`, and its results. */
export interface Guarantee {
  /** The maximum fraction of entities that are not in the set. null if false alarms are limited. */
  miss: number | null;

  /** The maximum fraction of the set that is wrong. null if misses are limited. */
  false_alarm: number | null;

  /** The probability that the guarantee holds. null if it holds on average over calibration docs. */
  confidence: number | null;

  /** When an entity counts as found: if it is in the set, or if its tokens are covered by it. */
  found: "exact" | "covered";

  /**
   * How misses are counted: as the mean fraction per doc, or as the fraction of docs in which any
   * entity is missed.
   */
  by: "doc" | "any";

  /** Whether there is a separate guarantee for each label. */
  per_label: boolean;

  /** The minimum score of spans in the set. */
  threshold: number;

  /** The minimum scores of individual labels. */
  labels: Record<string, number>;

  /** The name of the calibration docs. */
  source: string;

  /** The number of calibration docs. */
  docs: number;

  /** The number of entities in the calibration docs. */
  entities: number;
}
