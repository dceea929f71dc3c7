/**
 * String hashes as in spaCy's string store: MurmurHash64A of the UTF-8 text with seed 1. For the
 * names in spaCy's list of symbols, the hash is the number of the symbol.
 *
 * The columns "memory" and "clusters" in words.js identify words only by the lowest 32 bits of
 * their hash. Since JavaScript has no fast 64-bit integers, a 64-bit number is represented by its
 * high and low 32-bit halves.
 *
 * Austin Appleby: MurmurHash2, the version for 64-bit processors.
 */

const SEED = 1;
const FACTOR_HIGH = 0xc6a4a793;
const FACTOR_LOW = 0x5bd1e995;

const encoder = new TextEncoder();

/** A 64-bit number that is modified in place. */
class Number64 {
  /**
   * @param {number} high
   * @param {number} low
   */
  constructor(high, low) {
    this.high = high;
    this.low = low;
  }

  /**
   * Multiplies by the factor of the hash, modulo 2^64. For the halves h and l, H and L,
   *
   *     (2^32 h + l) (2^32 H + L) = 2^32 (h L + l H) + l L   modulo 2^64
   */
  multiply() {
    // `carry` is the high half of l L, computed from exact 16-bit products.
    const lowLow = (this.low & 0xffff) * (FACTOR_LOW & 0xffff);
    const lowHigh = (this.low & 0xffff) * (FACTOR_LOW >>> 16);
    const highLow = (this.low >>> 16) * (FACTOR_LOW & 0xffff);
    const highHigh = (this.low >>> 16) * (FACTOR_LOW >>> 16);
    const middle = (lowHigh & 0xffff) + (highLow & 0xffff) + (lowLow >>> 16);
    const carry = highHigh + (lowHigh >>> 16) + (highLow >>> 16) + (middle >>> 16);
    const crossed = Math.imul(this.high, FACTOR_LOW) + Math.imul(this.low, FACTOR_HIGH);
    this.high = (carry + crossed) >>> 0;
    this.low = Math.imul(this.low, FACTOR_LOW) >>> 0;
  }

  /** Replaces h with h xor (h >> 47). */
  mix() {
    // The shift moves 17 bits of the high half to the low half.
    this.low = (this.low ^ (this.high >>> 15)) >>> 0;
  }

  /**
   * Replaces h with h xor another number.
   * @param {number} high
   * @param {number} low
   */
  xor(high, low) {
    this.high = (this.high ^ high) >>> 0;
    this.low = (this.low ^ low) >>> 0;
  }
}

/**
 * Returns the lowest 32 bits of the MurmurHash64A of the bytes.
 * @param {Uint8Array} bytes
 * @returns {number}
 */
function hashBytes(bytes) {
  // h = seed xor (length * factor)
  const hash = new Number64(0, bytes.length);
  hash.multiply();
  hash.xor(0, SEED);

  const part = new Number64(0, 0);
  const nWhole = bytes.length - (bytes.length % 8);
  for (let i = 0; i < nWhole; i += 8) {
    part.low = readUint32(bytes, i, i + 4);
    part.high = readUint32(bytes, i + 4, i + 8);
    part.multiply();
    part.mix();
    part.multiply();
    hash.xor(part.high, part.low);
    hash.multiply();
  }
  // The remaining bytes (fewer than 8).
  if (nWhole < bytes.length) {
    const low = readUint32(bytes, nWhole, Math.min(nWhole + 4, bytes.length));
    const high = readUint32(bytes, nWhole + 4, bytes.length);
    hash.xor(high, low);
    hash.multiply();
  }
  hash.mix();
  hash.multiply();
  hash.mix();
  return hash.low;
}

/**
 * Reads up to four bytes as a little-endian number. Returns 0 if there are no bytes.
 * @param {Uint8Array} bytes
 * @param {number} begin The index of the first byte.
 * @param {number} end The index after the last byte.
 * @returns {number}
 */
function readUint32(bytes, begin, end) {
  let number = 0;
  for (let i = end - 1; i >= begin; i--) {
    number = (number << 8) | bytes[i];
  }
  return number >>> 0;
}

/**
 * Returns the lowest 32 bits of spaCy's hash of a string.
 * @param {string} string
 * @param {Map<string, number>} symbols The numbers of spaCy's symbols by name.
 * @returns {number}
 */
export function hashString(string, symbols) {
  return symbols.get(string) ?? hashBytes(encoder.encode(string));
}
