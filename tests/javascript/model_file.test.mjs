/** Model files, and damaged ones. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";

import { crc32 } from "../../spacy_costner/export/javascript/checksum.js";
import { readModel, VERSION } from "../../spacy_costner/export/javascript/model_file.js";

const N_DAMAGES = 400;
const golden = JSON.parse(await readFile(new URL("golden.json", import.meta.url), "utf8"));
const content = new Uint8Array(gunzipSync(Buffer.from(golden.model, "base64")));

/** Makes a function that returns random whole numbers below its argument, always the same ones. */
function makeRandom() {
  let state = 1;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Joins bytes. */
const join = (...parts) => new Uint8Array(Buffer.concat(parts));

/** What may happen to the bytes of a file, at a place. */
const DAMAGES = {
  bit: (bytes, at, random) => {
    bytes[at] ^= 1 << random(8);
    return bytes;
  },
  byte: (bytes, at, random) => {
    bytes[at] ^= 1 + random(255);
    return bytes;
  },
  stretch: (bytes, at, random) => {
    const end = Math.min(at + 1 + random(100), bytes.length);
    for (let i = at; i < end; i++) {
      bytes[i] ^= 1 + random(255);
    }
    return bytes;
  },
  zeros: (bytes, at) => {
    // From a byte that isn't 0
    const begin = bytes.findIndex((byte, i) => i >= at && byte !== 0);
    return bytes.fill(0, begin, begin + 512);
  },
  lost: (bytes, at, random) => {
    const end = at + 1 + random(100);
    return join(bytes.subarray(0, at), bytes.subarray(end));
  },
  twice: (bytes, at, random) => {
    const end = at + 1 + random(100);
    return join(bytes.subarray(0, end), bytes.subarray(at));
  },
  end: (bytes, at) => bytes.subarray(0, at),
  more: (bytes) => join(bytes, Uint8Array.of(0)),
};

test("the checksum is CRC-32", () => {
  assert.equal(crc32(new Uint8Array(0)), 0);
  assert.equal(crc32(new TextEncoder().encode("123456789")), 0xcbf43926); // its known check value
});

test("a file that a server has decompressed is read", async () => {
  assert.ok((await readModel(content)).header.passes.length > 0);
});

test("a Buffer is read like a Uint8Array, even if it is a part of a larger one", async () => {
  // A file with an array of floats, which must be aligned in memory
  const floats = [0.5, -1e300];
  const entry = { dtype: "float64", shape: [2], offset: 0 };
  const header = Buffer.from(JSON.stringify({ arrays: { costs: entry } }));
  const numbers = Buffer.alloc(8);
  numbers.writeUInt32LE(VERSION);
  numbers.writeUInt32LE(header.length, 4);
  const numbersOfArray = Buffer.from(Float64Array.from(floats).buffer);
  const body = join(Buffer.from("costner\n"), numbers, header, numbersOfArray);
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32LE(crc32(body));
  const bytes = join(body, checksum);
  assert.deepEqual([...(await readModel(bytes)).arrays.costs], floats);
  for (const nBytesBefore of [1, 8]) {
    const buffer = Buffer.concat([Buffer.alloc(nBytesBefore), bytes]).subarray(nBytesBefore);
    assert.deepEqual([...(await readModel(buffer)).arrays.costs], floats);
  }
});

test("all damaged files are refused", async () => {
  const random = makeRandom();
  const kinds = Object.keys(DAMAGES);
  for (let i = 0; i < N_DAMAGES; i++) {
    const kind = kinds[i % kinds.length];
    const at = random(content.length);
    const damaged = DAMAGES[kind](content.slice(), at, random);
    await assert.rejects(readModel(damaged), /^Error: model file: expected/, `${kind} at ${at}`);
  }
});
