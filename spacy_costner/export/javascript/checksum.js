/**
 * CRC-32, the checksum used by gzip and PNG. Equivalent to `zlib.crc32` in Python.
 *
 * It detects all damage within 32 bits, and misses other damage with a probability of 2^-32. It
 * doesn't protect against deliberate changes. The digests of `crypto.subtle` do, but browsers only
 * provide them in secure contexts.
 */

/** The polynomial, with the lowest bit first. */
const POLYNOMIAL = 0xedb88320;

/** The remainder of each byte. */
const REMAINDERS = Int32Array.from({ length: 256 }, (_, byte) => remainderOf(byte));

/**
 * Divides a byte followed by 32 zero bits by the polynomial, and returns the remainder.
 * @param {number} byte
 * @returns {number}
 */
function remainderOf(byte) {
  let remainder = byte;
  for (let bit = 0; bit < 8; bit++) {
    const isOdd = remainder & 1;
    remainder >>>= 1;
    if (isOdd) {
      remainder ^= POLYNOMIAL;
    }
  }
  return remainder;
}

/**
 * Returns the CRC-32 of the bytes.
 * @param {Uint8Array} bytes
 * @returns {number} An integer below 2^32.
 */
export function crc32(bytes) {
  let remainder = -1; // 32 ones, so that leading zeros affect the result
  for (let i = 0; i < bytes.length; i++) {
    remainder = (remainder >>> 8) ^ REMAINDERS[(remainder ^ bytes[i]) & 0xff];
  }
  return ~remainder >>> 0;
}
