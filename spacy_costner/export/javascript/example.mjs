// node example.mjs "Ana Ruiz met Kim in Rome."
import { load } from "./ner.js";

const ner = await load(new URL("model.bin", import.meta.url));
console.log(ner(process.argv[2]));
