/**
 * The hashes of strings as spaCy's string store has them: MurmurHash64A of the text in UTF-8, with
 * seed 1, but for the names in spaCy's list of symbols, whose hash is their number there.
 *
 * The columns "memory" and "clusters" of words.js know words by the lowest 32 bits of their hash
 * alone. JavaScript has no integers of 64 bits that are fast, so a number of 64 bits is two of 32:
 * its high and its low half.
 *
 * Austin Appleby: MurmurHash2, the version for 64-bit processors.
 */

const SEED = 1;
const FACTOR_HIGH = 0xc6a4a793;
const FACTOR_LOW = 0x5bd1e995;

const encoder = new TextEncoder();

/** A number of 64 bits, which the functions below change in place. */
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
   * Multiplies by the factor of the hash, modulo 2^64. With the halves h and l, H and L,
   *
   *     (2^32 h + l) (2^32 H + L) = 2^32 (h L + l H) + l L   modulo 2^64
   */
  multiply() {
    // `carry` is the high half of l L, from products of 16 bits, which are exact.
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

  /** Replaces h by h xor (h >> 47). */
  mix() {
    // The shift leaves 17 bits of the high half, in the low half.
    this.low = (this.low ^ (this.high >>> 15)) >>> 0;
  }

  /**
   * Replaces h by h xor another number.
   * @param {number} high
   * @param {number} low
   */
  xor(high, low) {
    this.high = (this.high ^ high) >>> 0;
    this.low = (this.low ^ low) >>> 0;
  }
}

/**
 * Returns the lowest 32 bits of the MurmurHash64A of some bytes.
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
  // The last bytes, of which there are fewer than 8.
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
 * Reads up to four bytes, the lowest first, as a number. It is 0 if there are none.
 * @param {Uint8Array} bytes
 * @param {number} begin The first of them.
 * @param {number} end The one after the last.
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
 * Returns the lowest 32 bits of the hash of a string in spaCy.
 * @param {string} string
 * @param {Map<string, number>} symbols The numbers of spaCy's symbols, by name.
 * @returns {number}
 */
export function hashString(string, symbols) {
  return symbols.get(string) ?? hashBytes(encoder.encode(string));
}
