/**
 * A program that uses all of the module, next to what `costner page --module` writes: TypeScript
 * accepts it in strict mode, and refuses the lines after `@ts-expect-error`.
 */

import { load } from "./ner.js";
import type {
  Decoding,
  Guarantee,
  Info,
  Ner,
  Options,
  Posterior,
  PredictedEntity,
  Result,
  Token,
} from "./ner.js";

const sources = ["model.bin", new URL("https://example.org/model.bin"), new ArrayBuffer(8)];
for (const source of [...sources, new Uint8Array(8), await fetch("model.bin")]) {
  const loaded: Ner = await load(source);
  console.log(loaded.labels.join(", "));
}
const ner = await load("model.bin");

const decoding: Decoding = "threshold";
const options: Options = {
  threshold: 0.5,
  labels: { city: 0.1 },
  decoding,
  tokens: true,
  guaranteed: true,
};
const result: Result = ner("Rome", options);
const first: PredictedEntity | undefined = result.find(({ label }) => label === "city");
const { start, end, label, score } = first ?? { start: 0, end: 0, label: "", score: 0 };
console.log("Rome".slice(start, end), label.toUpperCase(), score.toFixed(2));
const tokens: Token[] = result.tokens ?? [];
console.log(tokens.map((token) => token.text + (token.space ? " " : "")).join(""));
console.log(tokens.length - (result.guaranteed ?? []).length);

const posterior: Posterior = ner.posterior("Rome");
for (const missCost of [1, 5]) {
  ner.decode(posterior, { missCost, falseAlarmCost: 1 });
}
ner.decode(posterior, { bias: -0.5, decoding: "viterbi" });
console.log(posterior.text.length, posterior.tokens[0]?.end);

const info: Info = ner.info;
const promise: Guarantee | null = info.promise;
console.log(info.name, info.passes + info.temperature, promise?.miss ?? promise?.false_alarm);

// @ts-expect-error: no string
ner(new String("Rome"));
// @ts-expect-error: no text
ner();
// @ts-expect-error: several texts
ner(["Rome", "Oslo"]);
// @ts-expect-error: no option
ner("Rome", { treshold: 0.5 });
// @ts-expect-error: no number
ner("Rome", { threshold: "0.5" });
// @ts-expect-error: no decoding
ner("Rome", { decoding: "beam" });
// @ts-expect-error: no posterior
ner.decode("Rome");
// @ts-expect-error: no source
await load(42);
// @ts-expect-error: no key
console.log(info.language);
// @ts-expect-error: there may be no tokens
console.log(result.tokens.length);
