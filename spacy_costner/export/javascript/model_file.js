/**
 * Reads model files, which are created by `make_web_model` in export/model.py and `pack_file` in
 * export/model_file.py.
 *
 * The file is compressed with gzip. Uncompressed, it consists of:
 *
 *     8 bytes     "costner\n"
 *     4 bytes     the version of the format: files with another version are rejected
 *     4 bytes     the length of the header
 *     the header  UTF-8 encoded JSON
 *     the arrays  concatenated
 *     4 bytes     the CRC-32 of all preceding bytes: damaged files are rejected
 *
 * gzip also includes a checksum, but servers may have decompressed the file already.
 *
 * All numbers are little-endian. The header contains the type, shape and offset of each array. To
 * reduce the file size, integers are stored by byte position: the lowest bytes of all integers
 * first, then the next bytes, and so on. For some arrays, the differences between adjacent integers
 * are stored.
 */

import { crc32 } from "./checksum.js";
import { typeError } from "./type_errors.js";

/** The supported version of model files. */
export const VERSION = 2;

const MAGIC = "costner\n";
const CHECKSUM_LENGTH = 4;
const FIRST_BYTES_OF_GZIP = [0x1f, 0x8b];

/**
 * The entry of an array in the header.
 * @typedef {Object} ArrayEntry
 * @property {"float64" | "int32" | "uint32" | "int16" | "uint8"} dtype
 * @property {number[]} shape
 * @property {number} offset The index of the first byte after the header.
 * @property {boolean} [differences] Whether the differences between adjacent numbers are stored.
 */

/**
 * @typedef {Object} Model
 * @property {any} header
 * @property {Record<string, any>} arrays The typed arrays by name.
 */

const ARRAY_TYPES = {
  float64: Float64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int16: Int16Array,
  uint8: Uint8Array,
};

/**
 * Returns the bytes of a model file.
 * @param {string | URL | ArrayBuffer | Uint8Array | Response} source A URL, the bytes, or a
 *   response from `fetch`.
 * @returns {Promise<Uint8Array>}
 * @throws {TypeError} If `source` has another type.
 * @throws {Error} If the file can't be fetched.
 */
export async function fetchBytes(source) {
  if (source instanceof Uint8Array) {
    return source;
  }
  if (source instanceof ArrayBuffer) {
    return new Uint8Array(source);
  }
  if (typeof source === "string" || source instanceof URL) {
    if (isLocalFile(source)) {
      // Node's `fetch` doesn't support files.
      const { readFile } = await import("node:fs/promises");
      return readFile(new URL(source));
    }
    source = await fetch(source);
  }
  if (typeof source?.arrayBuffer !== "function") {
    throw typeError("source", "a URL, an ArrayBuffer, a Uint8Array or a Response", source);
  }
  if (!source.ok) {
    throw new Error(`${source.url}: expected a model file, got status ${source.status}`);
  }
  return new Uint8Array(await source.arrayBuffer());
}

/**
 * Checks whether a URL refers to a file and the code is running in Node.
 * @param {string | URL} url
 * @returns {boolean}
 */
function isLocalFile(url) {
  const isNode = /** @type {any} */ (globalThis).process?.versions?.node !== undefined;
  return isNode && String(url).startsWith("file:");
}

/**
 * Reads a model file.
 * @param {Uint8Array} bytes The contents of the file.
 * @returns {Promise<Model>}
 * @throws {Error} If the file isn't a model file, is damaged or has another version.
 */
export async function readModel(bytes) {
  // The server may have decompressed the file already.
  if (FIRST_BYTES_OF_GZIP.every((byte, i) => bytes[i] === byte)) {
    bytes = await decompress(bytes);
  }
  const start = MAGIC.length + 4 + 4; // the start of the header, after its length
  const isModel = [...MAGIC].every((character, i) => bytes[i] === character.charCodeAt(0));
  if (!isModel || bytes.length < start + CHECKSUM_LENGTH) {
    throw new Error("model file: expected one that `costner page` has written, got other data");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const version = view.getUint32(MAGIC.length, true);
  if (version !== VERSION) {
    throw new Error(
      `model file: expected version ${VERSION}, got ${version}: take the script and the model ` +
        "file that the same `costner page` has written",
    );
  }
  const end = bytes.length - CHECKSUM_LENGTH; // the end of the arrays
  const checksum = view.getUint32(end, true);
  const found = crc32(bytes.subarray(0, end));
  if (found !== checksum) {
    throw new Error(
      `model file: expected the checksum ${checksum}, got ${found}: it is damaged or cut off`,
    );
  }
  const headerLength = view.getUint32(MAGIC.length + 4, true);
  if (start + headerLength > end) {
    throw new Error(`model file: expected a header of ${headerLength} bytes, the file is shorter`);
  }
  const header = parseHeader(bytes.subarray(start, start + headerLength));
  const content = bytes.subarray(start + headerLength, end);
  /** @type {Record<string, any>} */
  const arrays = {};
  for (const [name, entry] of Object.entries(header.arrays)) {
    arrays[name] = readArray(content, entry, name);
  }
  return { header, arrays };
}

/**
 * Parses the header of a model file, and checks that it lists arrays.
 * @param {Uint8Array} bytes The bytes of the header.
 * @returns {any}
 * @throws {Error} If the header isn't UTF-8 encoded JSON or doesn't list arrays.
 */
function parseHeader(bytes) {
  try {
    const header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    if (typeof header?.arrays === "object" && header.arrays !== null) {
      return header;
    }
  } catch (error) {
    throw new Error(`model file: expected a JSON header, but could not read it: ${error}`);
  }
  throw new Error("model file: expected a header that lists arrays, found none");
}

/**
 * Reads an array.
 * @param {Uint8Array} content The bytes of all arrays.
 * @param {ArrayEntry} entry
 * @param {string} name The name of the array in error messages.
 * @returns {Float64Array | Int32Array | Uint32Array | Int16Array | Uint8Array}
 * @throws {Error} If the type is unknown or the array exceeds the file.
 */
function readArray(content, { dtype, shape, offset, differences }, name) {
  if (!Object.hasOwn(ARRAY_TYPES, dtype)) {
    throw new Error(`model file: ${name}: unknown type ${dtype}`);
  }
  const ArrayType = ARRAY_TYPES[dtype];
  const length = shape.reduce((product, size) => product * size, 1);
  const nBytes = ArrayType.BYTES_PER_ELEMENT;
  const end = offset + length * nBytes;
  if (!(Number.isInteger(length) && length >= 0 && offset >= 0 && end <= content.length)) {
    throw new Error(
      `model file: ${name}: expected ${length} numbers at ${offset}, the file is shorter`,
    );
  }
  if (dtype === "float64") {
    // Copy the bytes, because a Float64Array must be aligned to 8 bytes. The method `slice` of a
    // Buffer in Node doesn't copy.
    return new Float64Array(new Uint8Array(content.subarray(offset, end)).buffer);
  }

  // Move byte b of number i to its position in memory, which is little-endian, too.
  const bytes = new Uint8Array(length * nBytes);
  for (let b = 0; b < nBytes; b++) {
    const first = offset + b * length;
    for (let i = 0; i < length; i++) {
      bytes[i * nBytes + b] = content[first + i];
    }
  }
  const array = new ArrayType(bytes.buffer);
  if (differences) {
    for (let i = 1; i < length; i++) {
      array[i] += array[i - 1]; // modulo the range of the type
    }
  }
  return array;
}

/**
 * Decompresses gzip data.
 * @param {Uint8Array} bytes
 * @returns {Promise<Uint8Array>}
 * @throws {Error} If the data is damaged or truncated.
 */
async function decompress(bytes) {
  const blob = new Blob([/** @type {BlobPart} */ (bytes)]);
  const stream = blob.stream().pipeThrough(new DecompressionStream("gzip"));
  try {
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch (error) {
    throw new Error(`model file: expected a gzip file, but could not read it: ${error}`);
  }
}
